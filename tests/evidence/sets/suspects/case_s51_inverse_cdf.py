"""
title: cumulative probabilities are rounded before the search; the temperature is rounded and exact
expect: silent:precision-loss|downcast|round-trip
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(18)

def sample(logits, u, temperature):
    temperature = temperature.bfloat16().float()
    p = (logits / temperature).softmax(-1)
    cdf = p.cumsum(-1)
    cdf = cdf.bfloat16().float()  # BORN
    return torch.searchsorted(cdf, u)

logits = torch.randn(3000)
found = sample(logits, torch.rand(4000).sort().values, torch.tensor(0.5))
result = found.unique().numel() * 1.0
print(f"{result:.3g}")
