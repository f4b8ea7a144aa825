"""
title: noise injected into half feature maps in their own dtype
expect: clean

The sum stays half and the norm takes it.
"""
import torch
import torch.nn.functional as F
from torch import nn


class Noise(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.strength = nn.Parameter(torch.full((1, channels, 1, 1), 0.1))

    def forward(self, x):
        batch, _, height, width = x.shape
        grain = torch.randn(batch, 1, height, width, dtype=x.dtype)
        return x + self.strength * grain


class StyledLayer(nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.conv = nn.Conv2d(inside, outside, 3, padding=1)
        self.noise = Noise(outside)
        self.norm = nn.GroupNorm(4, outside)

    def forward(self, x):
        x = F.leaky_relu(self.noise(self.conv(x)), 0.2)
        return self.norm(x)


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.start = nn.Parameter(torch.randn(1, 16, 4, 4))
        self.layers = nn.Sequential(StyledLayer(16, 16), nn.Upsample(scale_factor=2), StyledLayer(16, 8))

    def forward(self, count):
        return self.layers(self.start.expand(count, -1, -1, -1))


torch.manual_seed(0)
with torch.no_grad():
    print(Generator().half()(2).shape)
