"""
title: a class token grown after the cast widens the patches that it is concatenated with
expect: collision
fix_at: 55

The new token takes over the values of the old one, yet not its dtype. torch.cat promotes the whole sequence, the
depthwise mixing keeps it wide in silence, and the first matrix refuses it.
"""
import torch
from torch import nn


class Step(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.out = nn.Linear(width, width)

    def mix(self, x):
        raise NotImplementedError

    def forward(self, x):
        return x + self.out(self.mix(x))  # COLLIDES


class Spread(Step):
    def mix(self, x):
        return x - x.mean(dim=1, keepdim=True)


class Feed(Step):
    def __init__(self, width):
        super().__init__(width)
        self.inward = nn.Linear(width, width)

    def mix(self, x):
        return torch.relu(self.inward(x))


class Vision(nn.Module):
    def __init__(self, width=16, classes=3):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, stride=4)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.steps = nn.Sequential(Spread(width), Feed(width), Spread(width), Feed(width))
        self.head = nn.Linear(width, classes)

    @torch.no_grad()
    def add_registers(self, count):
        old = self.cls_token
        self.cls_token = nn.Parameter(torch.zeros(1, 1 + count, old.shape[-1]))  # BORN
        self.cls_token[:, :1] = old

    def forward(self, image):
        patches = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(len(image), -1, -1), patches], dim=1)
        return self.head(self.steps(x)[:, 0])


torch.manual_seed(0)
vision = Vision().half()
image = torch.rand(2, 3, 16, 16).half()
print(vision(image).dtype)
vision.add_registers(2)
print(vision(image).dtype)
