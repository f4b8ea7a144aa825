"""
title: a blanket cast makes the rotary frequencies bfloat16, and distant positions are off by radians
expect: silent:downcast

The frequencies are a buffer, so `to(torch.bfloat16)` rounds them. Computing the angles in float32 afterwards does not
bring the digits back.
"""
import torch
from torch import nn


class Rotary(nn.Module):
    def __init__(self, width, base=10000.0):
        super().__init__()
        self.register_buffer("rate", base ** (-torch.arange(0, width, 2).float() / width), persistent=False)

    def forward(self, x):
        place = torch.arange(x.shape[-2], dtype=torch.float32)
        angle = torch.outer(place, self.rate.float())
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        even, odd = x[..., 0::2], x[..., 1::2]
        return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)


class Encoder(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.rotary, self.query, self.key = Rotary(width), nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        return (self.rotary(self.query(x)) @ self.rotary(self.key(x)).mT).softmax(dim=-1) @ x


torch.manual_seed(0)
encoder = Encoder(16).to(torch.bfloat16)  # BORN
with torch.no_grad():
    out = encoder(torch.randn(1, 600, 16, dtype=torch.bfloat16))
print(out.shape)