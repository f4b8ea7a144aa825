"""
title: torchtune-like rope: the cache is rebuilt in float32 for a longer sequence, and q becomes float32 before a bfloat16 kv cache
expect: collision
fix_at: 24, 27

The cache was cast with the model; extend() builds it anew without a dtype, and index_copy_ into the bfloat16 k cache refuses.
"""
import torch
from torch import nn


class Rope(nn.Module):
    def __init__(self, dim, length=4):
        super().__init__()
        self.dim = dim
        self.register_buffer("cache", self.build(length), persistent=False)

    def build(self, length):
        theta = 1.0 / 100 ** (torch.arange(0, self.dim, dtype=torch.float32) / self.dim)  # BORN
        return torch.cos(torch.arange(length)[:, None] * theta)

    def forward(self, x):
        if x.shape[1] > self.cache.shape[0]:
            self.cache = self.build(x.shape[1])
        return x * self.cache[: x.shape[1]]


class Attention(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.k, self.rope = nn.Linear(dim, dim), Rope(dim)
        self.register_buffer("k_cache", torch.zeros(1, 16, dim))

    def forward(self, x):
        k = self.rope(self.k(x))
        return self.k_cache.index_copy(1, torch.arange(x.shape[1]), k)  # COLLIDES


torch.manual_seed(0)
net = Attention().to(torch.bfloat16)
for n in (3, 4, 6):
    print(net(torch.randn(1, n, 8).bfloat16()).shape)
