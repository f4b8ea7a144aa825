"""
title: the last norm of a half generator loaded in bfloat16 and assigned
expect: collision
fix_at: 58

The noise is half like the feature maps. A float32 norm would have been accepted by a half input; a bfloat16 one,
taken as it lies in its file, is not.
"""
import io

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
        return self.norm(x)  # COLLIDES


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.start = nn.Parameter(torch.randn(1, 16, 4, 4))
        self.layers = nn.Sequential(StyledLayer(16, 16), nn.Upsample(scale_factor=2), StyledLayer(16, 8))

    def forward(self, count):
        return self.layers(self.start.expand(count, -1, -1, -1))


def published(module, dtype):
    file = io.BytesIO()
    torch.save({name: value.to(dtype) for name, value in module.state_dict().items()}, file)
    file.seek(0)
    return file


torch.manual_seed(0)
generator = Generator().half()
file = published(nn.GroupNorm(4, 8), torch.bfloat16)
generator.layers[2].norm.load_state_dict(torch.load(file), assign=True)  # BORN
with torch.no_grad():
    print(generator(2).shape)
