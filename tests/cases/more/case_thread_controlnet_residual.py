"""
title: residuals of a float32 ControlNet widen the stream of a float16 UNet
expect: collision
fix_at: 28, 43, 47

diffusers: controlnet in float32, unet in float16: down_block_res + residual is float32, and the next conv refuses.
"""
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.conv = nn.GroupNorm(2, width), nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x):
        return x + self.conv(torch.relu(self.norm(x)))  # COLLIDES


class UNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.inp, self.block, self.out = nn.Conv2d(4, width, 1), Block(width), nn.Conv2d(width, 4, 1)

    def forward(self, x, residual=None):
        h = self.inp(x)
        h = h + residual
        return self.out(self.block(h))


class ControlNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.cond, self.zero = nn.Conv2d(3, width, 1), nn.Conv2d(width, width, 1)  # BORN

    def forward(self, image):
        return self.zero(torch.relu(self.cond(image)))


torch.manual_seed(0)
unet = UNet().half()
control = ControlNet()
image = torch.rand(1, 3, 8, 8)
with torch.no_grad():
    residual = control(image)
    print(unet(torch.randn(1, 4, 8, 8).half(), residual).shape)
