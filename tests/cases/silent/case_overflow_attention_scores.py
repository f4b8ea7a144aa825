"""
title: unscaled attention scores outgrow float16
expect: silent:overflow
"""
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.scale = 200.0

    def forward(self, x):
        q, k, v = (self.qkv(x) * self.scale).chunk(3, dim=-1)
        scores = q @ k.transpose(-1, -2)  # BORN
        return scores.softmax(dim=-1) @ v


torch.manual_seed(0)
model = Attention(64).to(torch.float16)  # BORN
x = torch.randn(2, 12, 64).to(torch.float16)  # BORN
with torch.no_grad():
    print("not a number:", model(x).isnan().sum().item())
