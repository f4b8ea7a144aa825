"""
title: squares overflow in half; the gain is in half and harmless
expect: silent:overflow|precision-loss
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(12)

class Norm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(dim).half())

    def forward(self, x):
        x = x.half()  # BORN
        scale = x.square().mean(-1, keepdim=True).float().rsqrt()
        return x.float() * scale * self.gain.float()

norm = Norm(64)
with torch.no_grad():
    result = norm(400 * torch.randn(16, 64)).abs().mean()
print(f"{result:.3g}")
