"""
title: a frozen float32 layer casts its whole weight at each call of a sampling loop
expect: silent:round-trip

The weight never changes, so one cast before the loop would have done.
"""
import torch
import torch.nn.functional as F
from torch import nn


class ManualCast(nn.Linear):
    def forward(self, x):
        weight = self.weight.to(x.dtype)
        return F.linear(x, weight, self.bias.to(x.dtype))


torch.manual_seed(0)
model = nn.Sequential(ManualCast(16, 32), nn.GELU(), ManualCast(32, 16)).requires_grad_(False)  # BORN
x = torch.randn(2, 16).half()
for _ in range(8):
    x = x - 0.1 * model(x)
print(x.dtype)