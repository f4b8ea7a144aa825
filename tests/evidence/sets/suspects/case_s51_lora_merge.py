"""
title: small products are added to a bfloat16 weight; the product itself is rounded to it first
expect: silent:lost-update|precision-loss|downcast|round-trip
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(29)

base = torch.ones(32, 32).to(torch.bfloat16)  # BORN
up, down = 0.03 * torch.randn(32, 4), 0.03 * torch.randn(4, 32)
for adapter in range(12):
    delta = up.abs() @ down.abs()
    delta = delta.bfloat16()
    base += (0.3 * delta).to(base.dtype)
result = (base.float() - 1).mean()
print(f"{result:.3g}")
