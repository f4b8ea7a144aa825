"""
title: a preallocated half cache that is written by index, in a half decoder
expect: clean

Cache, keys and values are of one dtype; scores are masked in half and their softmax is taken in float32.
"""
import torch
import torch.nn.functional as F
from torch import nn


class Layer(nn.Module):
    def __init__(self, width, heads, longest):
        super().__init__()
        self.heads = heads
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.register_buffer("keys", torch.zeros(1, heads, longest, width // heads), persistent=False)
        self.register_buffer("values", torch.zeros(1, heads, longest, width // heads), persistent=False)

    def forward(self, x, place):
        q, k, v = (p.unflatten(-1, (self.heads, -1)).transpose(1, 2) for p in self.qkv(self.norm(x)).chunk(3, dim=-1))
        self.keys[:, :, place], self.values[:, :, place] = k, v
        hidden = torch.arange(self.keys.shape[2]) > place[-1]
        scores = (q @ self.keys.mT / q.shape[-1] ** 0.5).masked_fill(hidden, torch.finfo(q.dtype).min)
        share = F.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype)
        return x + self.out((share @ self.values).transpose(1, 2).flatten(2))


torch.manual_seed(0)
layers = nn.ModuleList(Layer(16, 2, 12) for _ in range(2)).half().eval()
x = torch.randn(1, 4, 16).half()
place = torch.arange(4)
with torch.inference_mode():
    for _ in range(5):
        for layer in layers:
            x = layer(x, place)
        x, place = x[:, -1:], place[-1:] + 1
print(x.dtype, layers[0].keys.dtype)