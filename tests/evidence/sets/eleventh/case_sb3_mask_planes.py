"""
title: causal and padding masks are joined as booleans before the lowest number is filled in
expect: clean
thread: https://github.com/NVIDIA-NeMo/Automodel/pull/2658
measured: finite True, choices as in float64 100.0% of 117

Expectation, written first: the two masks are never added, so no minus infinity arises in bfloat16, and a sink column
keeps padded rows finite; the greedy choices are those of a float64 run.
"""
import torch
from torch import nn


class MaskBuilder:
    def __init__(self, dtype):
        self.dtype = dtype

    def __call__(self, lengths, n):
        pos = torch.arange(n)
        causal = pos[None, :] > pos[:, None]
        padding = pos[None, :] >= lengths[:, None]
        blocked = causal[None] | padding[:, None]
        plane = torch.zeros(blocked.shape, dtype=self.dtype)
        return plane.masked_fill(blocked, torch.finfo(self.dtype).min)[:, None]


class SinkAttention(nn.Module):
    def __init__(self, dim=32, heads=4):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.sink = nn.Parameter(torch.zeros(heads))

    def forward(self, x, mask):
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        score = q @ k.transpose(-1, -2) * (d // self.heads) ** -0.5 + mask
        sink = self.sink.view(1, -1, 1, 1).expand(b, -1, n, 1).to(score.dtype)
        wide = torch.promote_types(score.dtype, torch.float32)
        p = torch.softmax(torch.cat([score, sink], -1).to(wide), -1)[..., :-1].to(v.dtype)
        return self.out((p @ v).transpose(1, 2).reshape(b, n, d))


class Tagger(nn.Module):
    def __init__(self, vocab=50, dim=32):
        super().__init__()
        self.embed, self.attend = nn.Embedding(vocab, dim), SinkAttention(dim)
        self.head = nn.Linear(dim, 2)

    def forward(self, ids, mask):
        x = self.embed(ids)
        return self.head(x + self.attend(x, mask))


def margins(model, ids, lengths, dtype):
    logits = model.to(dtype)(ids, MaskBuilder(dtype)(lengths, ids.shape[1]))
    return (logits[..., 1] - logits[..., 0]).double()


def main():
    torch.manual_seed(0)
    model = Tagger().eval()
    ids, lengths = torch.randint(0, 50, (6, 20)), torch.tensor([20, 3, 11, 7, 16, 20])
    state = {k: v.bfloat16().float() for k, v in model.state_dict().items()}
    model.load_state_dict(state)
    with torch.no_grad():
        wide = margins(model, ids, lengths, torch.float64)
        narrow = margins(model, ids, lengths, torch.bfloat16)
    sure = wide.abs() > 0.05
    same = ((narrow > 0) == (wide > 0))[sure].double().mean().item()
    print(f"finite {bool(narrow.isfinite().all())}, choices as in float64 {100 * same:.1f}% of {int(sure.sum())}")


main()
