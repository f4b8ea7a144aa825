"""
title: a batch is moved to the model's dtype with all its fields, the padding mask among them is inverted later
expect: collision
fix_at: 19, 33, 34

After https://github.com/huggingface/transformers/issues/16359 and https://github.com/facebookresearch/fairseq/issues/2937.
Right: only floating point fields are cast.
"""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(17)


class Batch(dict):
    def to(self, dtype):
        return Batch({name: value.to(dtype) for name, value in self.items()})  # BORN


class Pooler(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.frames, self.score = nn.Linear(8, dim), nn.Linear(dim, 1)
        self.out = nn.Linear(dim, 3)

    def forward(self, frames, valid):
        x = F.gelu(self.frames(frames))
        scores = self.score(x).squeeze(-1)
        return self.out(self.pooled(x, scores, valid))

    def pooled(self, x, scores, valid):
        scores = scores.masked_fill(~valid, -1e4)  # COLLIDES
        return (scores.softmax(-1)[..., None] * x).sum(1)


def collate(lengths, longest=7):
    frames = torch.randn(len(lengths), longest, 8)
    valid = torch.arange(longest)[None] < torch.tensor(lengths)[:, None]
    return Batch(frames=frames, valid=valid)


@torch.inference_mode()
def classify(dtype=torch.bfloat16):
    model = Pooler().to(dtype).eval()
    for _ in range(2):
        batch = collate([7, 4, 5]).to(dtype)
        print(model(**batch).argmax(-1).tolist())


classify()
