"""
title: a static cache in the default dtype takes half keys and gives them back half
expect: silent:round-trip

An indexed write widens without a word, and the cast back hides it: twice the memory, and a copy of the whole cache at
each step.
"""
import torch
from torch import nn


class Cache:
    def __init__(self, longest, width):
        self.keys = torch.zeros(longest, width)  # BORN
        self.length = 0

    def update(self, k):
        self.keys[self.length : self.length + len(k)] = k
        self.length += len(k)
        return self.keys[: self.length].to(k.dtype)  # BORN


class Decoder(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.query, self.key, self.out = (nn.Linear(width, width) for _ in range(3))

    def forward(self, x, cache):
        keys = cache.update(self.key(x))
        return x + self.out((self.query(x) @ keys.mT).softmax(dim=-1) @ keys)


torch.manual_seed(0)
decoder, cache = Decoder(16).half().eval(), Cache(32, 16)
x = torch.randn(1, 16).half()
with torch.no_grad():
    for _ in range(6):
        x = decoder(x, cache)
print(x.dtype, cache.length)
