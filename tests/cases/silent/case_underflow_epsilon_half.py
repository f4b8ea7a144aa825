"""
title: an epsilon of 1e-8 vanishes in float16, and the empty patch divides zero by zero
expect: silent:underflow
"""
import torch
from torch import nn


class Pool(nn.Module):
    """Mean over the pixels of a mask, one for each channel."""

    def forward(self, features, mask):
        weight = mask / (mask.sum(dim=(-2, -1), keepdim=True) + 1e-8)  # BORN
        return (features * weight).sum(dim=(-2, -1))


torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.SiLU()).half()  # BORN
features = model(torch.randn(4, 3, 8, 8).half())  # BORN
mask = (torch.rand(4, 1, 8, 8) > 0.5).half()  # BORN
mask[2] = 0
print(Pool()(features, mask).isnan().any(dim=-1).tolist())
