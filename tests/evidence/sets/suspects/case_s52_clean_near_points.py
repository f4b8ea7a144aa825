"""
title: coordinates about the origin may be rounded
expect: clean
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(6)

points = torch.randn(60, 3).bfloat16()
result = (points.float()[:, None] - points.float()[None]).square().sum(-1).sqrt().mean()
print(f"{result:.3g}")
