"""
title: the epsilon vanishes in half; the rows that it guards are in half as well
expect: silent:underflow|overflow|precision-loss
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(10)

def normalised(x):
    norm = x.float().norm(dim=-1, keepdim=True)
    eps = torch.tensor(1e-8, dtype=torch.float16)  # BORN
    return x.float() / (norm + eps.float())

rows = torch.randn(32, 16)
rows[5] = 0
rows = rows.half()
result = normalised(rows).square().sum()
print(f"{result:.3g}")
