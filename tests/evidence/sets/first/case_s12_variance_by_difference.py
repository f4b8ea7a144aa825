"""
title: a hand-made normalisation takes E[x*x] - E[x]**2 in bfloat16; with a mean far from zero the variance is noise
expect: silent:precision-loss|downcast
modes: diagnose

sbryngelson/ANEForge#263, anthonymlortiz/lcn#4. Mean 12, spread 0.3: both terms are about 144, where bfloat16's step is 1.
Measured: The spread after the norm is 0.27 to 108; 0.997 to 1.003 with a float32 variance.
BORN is the line of the variance (x.float(), or x.var()); the network's bfloat16 is meant.
"""
import torch
from torch import nn


class ContextNorm(nn.Module):
    def __init__(self, width, eps=1e-5):
        super().__init__()
        self.weight, self.bias, self.eps = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width)), eps

    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        spread = ((x * x).mean(-1, keepdim=True) - mean * mean).clamp(min=0)  # BORN
        return (x - mean) * torch.rsqrt(spread + self.eps) * self.weight + self.bias


class Regressor(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.norm = ContextNorm(width)
        self.body = nn.Sequential(nn.Linear(width, 32), nn.GELU(), nn.Linear(32, 4))

    def forward(self, x):
        return self.body(self.norm(x))


torch.manual_seed(0)
model = Regressor().to(torch.bfloat16).eval()
readings = (12 + 0.3 * torch.randn(32, 64)).to(torch.bfloat16)
with torch.no_grad():
    normal = model.norm(readings)
    out = model(readings)
print("spread after the norm (should be 1):", float(normal.float().std(-1).min()), float(normal.float().std(-1).max()), tuple(out.shape))
