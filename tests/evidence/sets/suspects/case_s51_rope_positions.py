"""
title: positions are rounded; frequencies are too, but they are powers of two
expect: silent:precision-loss|downcast|round-trip
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(3)

def table(length):
    freqs = 2.0 ** -torch.arange(8).float()
    freqs = freqs.bfloat16().float()
    positions = torch.arange(length)
    positions = positions.to(torch.bfloat16)  # BORN
    return torch.outer(positions.float(), freqs).sin()

result = table(2000).diff(dim=0).square().mean()
print(f"{result:.3g}")
