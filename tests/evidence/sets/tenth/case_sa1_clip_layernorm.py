"""
title: a layer norm that computes in float32 is left with bfloat16 weights by the model's cast
expect: collision
thread: https://github.com/mlfoundations/open_clip/issues/916

Expectation, written first: the norm widens its input on purpose and counts on float32
weights; the cast of the whole tower made them bfloat16, and layer_norm refuses the pair.
"""
import torch
from torch import nn
import torch.nn.functional as F


class LayerNormFp32(nn.LayerNorm):
    def forward(self, x):
        out = F.layer_norm(x.to(torch.float32), self.normalized_shape, self.weight, self.bias, self.eps)  # COLLIDES
        return out.to(x.dtype)


class TextTower(nn.Module):
    def __init__(self, vocab=80, width=32, layers=2):
        super().__init__()
        self.token = nn.Embedding(vocab, width)
        self.norms = nn.ModuleList(LayerNormFp32(width) for _ in range(layers))
        self.mlps = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)) for _ in range(layers)
        )

    def forward(self, ids):
        x = self.token(ids)
        for norm, mlp in zip(self.norms, self.mlps):
            x = x + mlp(norm(x))
        return F.normalize(x.mean(1), dim=-1)


def create_model(precision):
    torch.manual_seed(0)
    model = TextTower().eval()
    if precision == "bf16":
        model = model.to(torch.bfloat16)  # BORN
    return model


@torch.no_grad()
def main():
    model = create_model("bf16")
    ids = torch.randint(0, 80, (3, 10))
    feats = model(ids).float()
    print("similarities", (feats @ feats.T).flatten().tolist())


main()
