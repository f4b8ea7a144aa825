"""
title: scores are chosen by in float32, and their weights rounded after it
expect: clean
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(7)

gate = nn.Linear(32, 16, bias=False)
with torch.no_grad():
    scores = gate(torch.randn(400, 32)).sigmoid()
    chosen = (scores + 8).topk(2).indices
    weights = scores.gather(-1, chosen).bfloat16()
result = weights.float().sum()
print(f"{result:.3g}")
