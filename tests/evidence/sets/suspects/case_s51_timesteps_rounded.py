"""
title: timesteps are rounded before the sine; its result is rounded too, which costs one rounding
expect: silent:precision-loss|downcast|round-trip
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(5)

def embed(t, dim=16):
    freqs = torch.exp(-6.0 * torch.arange(dim) / dim)
    return torch.sin(t[:, None].float() * freqs)

t = torch.linspace(1, 999, 40).round()
t = t.bfloat16()  # BORN
code = embed(t)
code = code.bfloat16()
result = code.float().mean(0).square().sum()
print(f"{result:.3g}")
