"""
title: frequencies are rounded; positions are too, but whole numbers up to 256 stay exact
expect: silent:precision-loss|downcast|round-trip
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(4)

class Rope(nn.Module):
    def __init__(self, dim):
        super().__init__()
        freqs = 100.0 ** (-torch.arange(dim) / dim)
        self.register_buffer("freqs", freqs.to(torch.bfloat16))  # BORN

    def forward(self, positions):
        positions = positions.bfloat16().float()
        return torch.outer(positions, self.freqs.float()).cos()

rope = Rope(16)
result = rope(torch.arange(0, 250))[-50:].sum(0).square().sum()
print(f"{result:.3g}")
