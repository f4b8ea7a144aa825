"""
title: norms that were made after the cast keep float32 weights, and the stream is float32 from the first on
expect: silent:promotion

Each projection brings its input to its own dtype, so nothing raises; residuals, activations and norms all run at
twice the size.
"""
import torch
import torch.nn.functional as F
from torch import nn


class ScaleNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))  # BORN

    def forward(self, x):
        return x / x.square().mean(dim=-1, keepdim=True).add(1e-5).sqrt() * self.weight


class Project(nn.Linear):
    def forward(self, x):
        return F.linear(x.to(self.weight.dtype), self.weight, self.bias)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.gate, self.down = nn.LayerNorm(width), Project(width, 2 * width), nn.GELU(), Project(2 * width, width)

    def forward(self, x):
        x = self.norm(x)
        return x + self.down(self.gate(self.up(x)))


def modern(model):
    """Replaces every LayerNorm by the cheaper one."""
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.LayerNorm):
                setattr(module, name, ScaleNorm(child.normalized_shape[0]))
    return model


torch.manual_seed(0)
model = modern(nn.Sequential(*(Block(16) for _ in range(4))).half())
with torch.no_grad():
    out = model(torch.randn(2, 6, 16).half())
print(out.dtype)