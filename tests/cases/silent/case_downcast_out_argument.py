"""
title: float32 distances are written into a preallocated half tensor through out=
expect: silent:downcast

The scratch tensor saves an allocation at each call, and eleven bits of each distance.
"""
import torch
from torch import nn


class Nearest(nn.Module):
    def __init__(self, count, width):
        super().__init__()
        self.codes = nn.Parameter(torch.randn(count, width))
        self.scratch = torch.empty(16, count, width, dtype=torch.float16)  # BORN

    @torch.no_grad()
    def forward(self, x):
        torch.sub(x[:, None], self.codes, out=self.scratch)
        return self.scratch.float().square().sum(dim=-1).argmin(dim=-1)


torch.manual_seed(0)
encoder, nearest = nn.Sequential(nn.Linear(6, 8), nn.Tanh()), Nearest(5, 8)
with torch.no_grad():
    print([nearest(encoder(torch.randn(16, 6))).shape[0] for _ in range(3)])
