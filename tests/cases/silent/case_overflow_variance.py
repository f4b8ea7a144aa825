"""
title: a hand-written norm squares its input in float16 under autocast
expect: silent:overflow
"""
import torch
from torch import nn


class RMS(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        power = (x * x).sum(dim=-1, keepdim=True)  # BORN
        return x / power.sqrt() * (power - power.mean()) * self.weight


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(32, 64), RMS(64), nn.Linear(64, 4))
with torch.autocast("cpu", dtype=torch.float16):  # BORN
    hidden = model[0](300 * torch.randn(4, 32))  # BORN
    loss = model[2](model[1](hidden)).float().mean()
print("loss", loss.item())
