"""
title: a static cache of the default dtype refuses bfloat16 keys by index_copy_
expect: collision
fix_at: 46

A slice would have been cast in silence; a copy to positions is not. The cache is a dataclass that knows its sizes
and nothing of the decoder it serves.
"""
from dataclasses import dataclass, field

import torch
from torch import nn


@dataclass
class StaticCache:
    batch: int
    length: int
    width: int
    keys: torch.Tensor = field(init=False)
    values: torch.Tensor = field(init=False)

    def __post_init__(self):
        self.keys, self.values = (torch.zeros(self.batch, self.length, self.width) for _ in "kv")  # BORN

    def update(self, place, key, value):
        self.keys.index_copy_(1, place, key)  # COLLIDES
        self.values.index_copy_(1, place, value)
        return self.keys, self.values


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(width, width, bias=False) for _ in range(3))

    def forward(self, x, place, cache):
        keys, values = cache.update(place, self.k(x), self.v(x))
        scores = self.q(x) @ keys.transpose(1, 2)
        future = torch.arange(keys.shape[1]) > place[:, None]
        return scores.masked_fill(future, torch.finfo(scores.dtype).min).softmax(dim=-1) @ values


torch.manual_seed(0)
attention = Attention(8).to(torch.bfloat16)
cache = StaticCache(batch=1, length=12, width=8)
with torch.inference_mode():
    prompt = torch.randn(1, 4, 8, dtype=torch.bfloat16)
    print(attention(prompt, torch.arange(4), cache).shape)
    print(attention(prompt[:, -1:], torch.tensor([4]), cache).shape)
