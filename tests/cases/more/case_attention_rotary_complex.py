"""
title: rotary embedding by complex numbers leaves queries and keys in float32
expect: collision
fix_at: 21, 35

There is no complex half product, so the way into float32 is right; the way back is missing. Queries and keys agree
with one another, and it is the value, which was never turned, that attention finds different.
"""
import torch
import torch.nn.functional as F
from torch import nn


def rotary(width, length, base=10000.0):
    rate = base ** (-torch.arange(0, width, 2, dtype=torch.float32) / width)
    angle = torch.outer(torch.arange(length, dtype=torch.float32), rate)
    turn = torch.polar(torch.ones_like(angle), angle)

    def apply(x):
        pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))  # BORN
        return torch.view_as_real(pairs * turn[: x.shape[-2]]).flatten(-2)

    return apply


class Attention(nn.Module):
    def __init__(self, width, heads, length):
        super().__init__()
        self.heads = heads
        self.turn = rotary(width // heads, length)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1))
        q, k = self.turn(q), self.turn(k)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # COLLIDES
        return self.out(mixed.transpose(1, 2).flatten(2))


torch.manual_seed(0)
attention = Attention(width=16, heads=2, length=32).half()
with torch.no_grad():
    print(attention(torch.randn(1, 5, 16).half()).shape)
