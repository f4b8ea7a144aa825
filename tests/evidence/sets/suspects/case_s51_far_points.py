"""
title: coordinates far from the origin are rounded before their differences; the distances are rounded after
expect: silent:precision-loss|downcast|round-trip
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(19)

def neighbours(points):
    points = points.bfloat16().float()  # BORN
    apart = points[:, None] - points[None]
    distance = apart.square().sum(-1).sqrt()
    return distance.bfloat16().float()

points = 500 + torch.rand(60, 3)
result = neighbours(points).mean()
print(f"{result:.3g}")
