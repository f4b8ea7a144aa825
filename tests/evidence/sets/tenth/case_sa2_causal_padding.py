"""
title: a causal mask and padding masks, each filled with the smallest half, are added
expect: silent:overflow
thread: https://github.com/NVIDIA-NeMo/Automodel/pull/2658
measured: real tokens with finite features: 35%
widened: real tokens with finite features: 100%

Expectation, written first: where two forbid, the sum is minus infinity; the rows of left
padding are infinite throughout, their softmax is NaN and NaN values spread to all tokens.
"""
import torch
from torch import nn


def build_mask(keep, dtype):
    n = keep.shape[1]
    low = torch.finfo(dtype).min
    causal = torch.full((n, n), low, dtype=dtype).triu(1)  # BORN
    padding = torch.zeros(keep.shape, dtype=dtype).masked_fill(~keep, low)  # BORN
    keys, queries = padding[:, None, None, :], padding[:, None, :, None]
    return causal[None, None] + keys + queries  # BORN


class Block(nn.Module):
    def __init__(self, dim=32, heads=4):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x, mask):
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) / (d // self.heads) ** 0.5 + mask
        y = scores.float().softmax(-1).to(x.dtype) @ v
        return x + self.out(y.transpose(1, 2).reshape(b, n, d))


@torch.no_grad()
def main():
    torch.manual_seed(0)
    blocks = nn.ModuleList(Block() for _ in range(2)).half()
    keep = torch.ones(4, 12, dtype=torch.bool)
    for row, pad in enumerate([0, 2, 5, 7]):
        keep[row, :pad] = False
    x = torch.randn(4, 12, 32).half()
    mask = build_mask(keep, x.dtype)
    for block in blocks:
        x = block(x, mask)
    good = torch.isfinite(x[keep]).all(-1).float().mean().item()
    print(f"real tokens with finite features: {100 * good:.0f}%")


main()
