"""
title: the teacher's output is rounded on its own; what both networks read is rounded once
expect: silent:precision-loss|downcast|round-trip
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(1)

trunk = nn.Linear(32, 64)
head = nn.Linear(64, 100)
x = torch.randn(128, 32)
with torch.no_grad():
    shared = 20 * trunk(x).bfloat16().float()
    student = head(shared) + 1e-3 * torch.randn(128, 100)
    teacher = head(shared).bfloat16().float()  # BORN
    result = (student - teacher).square().mean()
print(f"{result:.3g}")
