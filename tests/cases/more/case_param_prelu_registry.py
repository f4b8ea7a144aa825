"""
title: an activation from a registry brings a half slope into a float32 network
expect: collision
culprit: act.weight
fix_at: 25

The message names no parameter, and an activation is not where one looks for weights. All convolutions, the input
and the other activations are float32.
"""
import torch
from torch import nn

ACTIVATIONS = {
    "relu": lambda channels: nn.ReLU(),
    "silu": lambda channels: nn.SiLU(),
    "prelu": lambda channels: nn.PReLU(channels).to(torch.float16),  # BORN
}


class ConvAct(nn.Module):
    def __init__(self, inside, outside, act):
        super().__init__()
        self.conv = nn.Conv2d(inside, outside, 3, padding=1)
        self.norm = nn.BatchNorm2d(outside)
        self.act = ACTIVATIONS[act](outside)

    def forward(self, x):
        return self.act(self.norm(self.conv(x)))  # COLLIDES


def network(*, channels, acts):
    widths = [1] + [channels] * len(acts)
    return nn.Sequential(*(ConvAct(a, b, act) for a, b, act in zip(widths, widths[1:], acts)))


torch.manual_seed(0)
upscaler = network(channels=8, acts=("relu", "silu", "prelu", "relu"))
print(upscaler(torch.rand(2, 1, 9, 9)).mean().item())
