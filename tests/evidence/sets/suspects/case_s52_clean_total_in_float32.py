"""
title: losses in bfloat16 are added up in float32
expect: clean
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(8)

total = torch.zeros(())
for batch in range(300):
    total += (1 + 0.2 * torch.rand(32)).mean().bfloat16().float()
result = total / 300
print(f"{result:.3g}")
