"""
title: keys and values lie in a float32 cache between two bfloat16 layers of work
expect: silent:round-trip

The cache is only appended to and read; each step casts the whole of it back.
"""
import torch
from torch import nn


class Cache:
    def __init__(self):
        self.keys = self.values = None

    def append(self, k, v):
        k, v = k.float(), v.float()  # BORN
        self.keys = k if self.keys is None else torch.cat([self.keys, k], dim=1)
        self.values = v if self.values is None else torch.cat([self.values, v], dim=1)
        return self.keys.to(torch.bfloat16), self.values.to(torch.bfloat16)  # BORN


class Decoder(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, cache):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        k, v = cache.append(k, v)
        return self.out((q @ k.mT).softmax(dim=-1) @ v)


torch.manual_seed(0)
decoder, cache = Decoder(16).to(torch.bfloat16), Cache()
x = torch.randn(1, 1, 16, dtype=torch.bfloat16)
with torch.inference_mode():
    for _ in range(6):
        x = decoder(x, cache)
print(cache.keys.shape, cache.keys.dtype)