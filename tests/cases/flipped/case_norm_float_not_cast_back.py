"""
title: a low-rank update merged in float32 widens one matrix of a bfloat16 stack
expect: collision
culprit: unit.gate.weight

The norm comes back to bfloat16. The update was drawn in the default dtype, the sum followed it, and the sum is now the
weight; the value matrix beside it and the whole other layer are bfloat16.
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
        return self.out(F.silu(self.gate(x)) * self.value(x))  # COLLIDES


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.unit = ScaleNorm(width), GatedUnit(width)

    def forward(self, x):
        return x + self.unit(self.norm(x) * x.shape[-1] ** 0.5)


torch.manual_seed(0)
stack = nn.Sequential(*(Layer(16) for _ in range(2))).to(torch.bfloat16)
gate = stack[1].unit.gate
gate.weight.data = gate.weight.data + torch.randn(32, 2) @ torch.randn(2, 16) * 0.01  # BORN
out = stack(torch.randn(2, 5, 16).to(torch.bfloat16))
print(out.shape, out.dtype)
