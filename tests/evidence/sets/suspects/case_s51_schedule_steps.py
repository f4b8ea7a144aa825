"""
title: times of a schedule are equal in bfloat16; the latents in bfloat16 are harmless
expect: silent:precision-loss|downcast|round-trip
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(27)

def schedule(count):
    t = torch.linspace(0.5, 1.0, count)
    return t.bfloat16()  # BORN

t = schedule(400)
latents = torch.randn(4, 8)
latents = latents.bfloat16()
x = latents.float()
for now, then in zip(t[:-1].float(), t[1:].float()):
    x = x + (then - now) / (then - now + 1e-3) * 0.1 * x.sin()
result = x.square().sum()
print(f"{result:.3g}")
