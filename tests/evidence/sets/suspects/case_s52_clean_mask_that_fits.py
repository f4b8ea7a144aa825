"""
title: a mask of -1e4 fits half, and no row is all pads
expect: clean
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(5)

scores = torch.randn(4, 8).half()
mask = torch.zeros(4, 8).masked_fill(torch.arange(8) > 5, -1e4).half()
result = (scores + mask).float().softmax(-1).square().sum()
print(f"{result:.3g}")
