"""
title: rotary embedding in float32 is not cast back before the key goes into the bfloat16 cache
expect: collision
fix_at: 24

After meta-pytorch/torchtune#1349 (got BFloat16 for the destination and Float for the source) and Lightning-AI/litgpt#57.
The rotation is done in float32, as it should be; the `.type_as(x)` at its end is missing, the cache is right.
Right change: cast the rotated tensor back in rotate().
"""
import torch
import torch.nn.functional as F
from torch import nn


def rope_table(length, dim, base=10000.0):
    angle = torch.outer(torch.arange(length).float(), base ** (-torch.arange(0, dim, 2).float() / dim))
    return torch.stack([angle.cos(), angle.sin()], -1)


def rotate(x, table, positions):
    pairs = x.float().unflatten(-1, (-1, 2))  # BORN
    cos, sin = table[positions].unbind(-1)
    a, b = pairs.unbind(-1)
    return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)


class KVCache(nn.Module):
    def __init__(self, batch, heads, length, dim, dtype):
        super().__init__()
        self.register_buffer("k", torch.zeros(batch, heads, length, dim, dtype=dtype), persistent=False)
        self.register_buffer("v", torch.zeros(batch, heads, length, dim, dtype=dtype), persistent=False)

    def update(self, positions, k, v):
        self.v.index_copy_(2, positions, v)
        self.k.index_copy_(2, positions, k)  # COLLIDES
        return self.k, self.v


class Attention(nn.Module):
    def __init__(self, width=16, heads=2):
        super().__init__()
        self.heads, self.cache, self.table = heads, None, rope_table(32, width // heads)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)

    def forward(self, x, positions):
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        k, v = self.cache.update(positions, rotate(k, self.table, positions), v)
        q = rotate(q, self.table, positions)
        mask = torch.arange(k.shape[2]) <= positions[:, None]
        return self.out(F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(-2))


torch.manual_seed(0)
layers = nn.ModuleList(Attention() for _ in range(2)).to(torch.bfloat16).eval()
for layer in layers:
    layer.cache = KVCache(1, 2, 16, 8, torch.bfloat16)
with torch.no_grad():
    x, positions = torch.randn(1, 5, 16).to(torch.bfloat16), torch.arange(5)
    for layer in layers:
        x = x + layer(x, positions)
print(x.dtype, tuple(x.shape))
