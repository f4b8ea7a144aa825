"""
title: squares of gradients vanish as they are stored in half; the first moment in half is harmless
expect: silent:underflow|overflow|precision-loss|downcast
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(26)

class Lean:
    def __init__(self, p):
        self.p = p
        self.m = torch.zeros_like(p, dtype=torch.float16)
        self.v = torch.zeros_like(p, dtype=torch.float16)  # BORN

    @torch.no_grad()
    def step(self, lr=1e-3):
        g = self.p.grad
        self.m.copy_(0.9 * self.m.float() + 0.1 * g)
        self.v.copy_(0.9 * self.v.float() + 0.1 * g.square())
        self.p -= lr * self.m.float() / (self.v.float().sqrt() + 1e-6)

p = nn.Parameter(torch.randn(64))
lean = Lean(p)
for step in range(4):
    p.grad = None
    (2e-5 * (p * torch.linspace(-1, 1, 64)).sum()).backward()
    lean.step()
result = p.detach().square().sum()
print(f"{result:.3g}")
