"""
title: a norm that computes in float32 for stability and comes back
expect: clean

The product with the gain is bfloat16 again.
"""
import torch
import torch.nn.functional as F
from torch import nn


class ScaleNorm(nn.Module):
    def __init__(self, width, eps=1e-6):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x):
        return self.gain * F.normalize(x.float(), dim=-1, eps=self.eps).to(x.dtype)


class GatedUnit(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gate = nn.Linear(width, 2 * width, bias=False)
        self.value = nn.Linear(width, 2 * width, bias=False)
        self.out = nn.Linear(2 * width, width, bias=False)

    def forward(self, x):
        x = F.pad(x, (0, 0, 1, 0))[:, :-1]
        return self.out(F.silu(self.gate(x)) * self.value(x))


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.unit = ScaleNorm(width), GatedUnit(width)

    def forward(self, x):
        return x + self.unit(self.norm(x) * x.shape[-1] ** 0.5)


torch.manual_seed(0)
stack = nn.Sequential(*(Layer(16) for _ in range(2))).to(torch.bfloat16)
out = stack(torch.randn(2, 5, 16).to(torch.bfloat16))
print(out.shape, out.dtype)
