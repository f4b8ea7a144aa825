"""
title: the mean of squares is rounded before the square of the mean is taken from it; the data are exact
expect: silent:precision-loss|downcast|round-trip
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(2)

def spread(x):
    first = x.float().mean(0)
    second = x.float().square().mean(0)
    second = second.bfloat16().float()  # BORN
    return second - first.square()

pixels = torch.randint(120, 128, (512, 16)).float()
pixels = pixels.bfloat16()
result = spread(pixels).mean()
print(f"{result:.3g}")
