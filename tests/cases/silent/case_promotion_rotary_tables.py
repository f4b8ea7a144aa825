"""
title: rotary tables kept as plain tensors stay float32, and scores are computed in float32
expect: silent:promotion

Tables are neither parameters nor buffers, so `bfloat16()` leaves them. Queries and keys are widened alike, so their
product does not complain; the probabilities are cast back for the values.
"""
import torch
from torch import nn


class Rotary:
    def __init__(self, width, length, base=10000.0):
        rate = base ** (-torch.arange(0, width, 2) / width)  # BORN
        angle = torch.outer(torch.arange(length), rate)
        self.cos, self.sin = angle.cos().repeat(1, 2), angle.sin().repeat(1, 2)

    def __call__(self, x):
        left, right = x.chunk(2, dim=-1)
        length = x.shape[-2]
        return x * self.cos[:length] + torch.cat([-right, left], dim=-1) * self.sin[:length]


class Attention(nn.Module):
    def __init__(self, width, heads, length):
        super().__init__()
        self.heads, self.rotary = heads, Rotary(width // heads, length)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1))
        scores = self.rotary(q) @ self.rotary(k).transpose(-1, -2) * q.shape[-1] ** -0.5
        mixed = scores.softmax(dim=-1).to(v.dtype) @ v
        return self.out(mixed.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, width, heads, length):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(width), Attention(width, heads, length)

    def forward(self, x):
        return x + self.attention(self.norm(x))


torch.manual_seed(0)
model = nn.Sequential(*(Block(32, 4, 64) for _ in range(2))).bfloat16()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    loss = model(torch.randn(2, 12, 32, dtype=torch.bfloat16)).float().square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(round(loss.item(), 2))