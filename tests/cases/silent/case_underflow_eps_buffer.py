"""
title: a layer keeps its epsilon in a buffer, and half() makes it zero
expect: silent:underflow
"""
import torch
from torch import nn


class Whiten(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.register_buffer("eps", torch.full((width,), 1e-8))
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, x):
        spread = (x - x.mean(0)).abs().mean(0)
        return self.gain * x / (spread + self.eps)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.whiten, self.head = nn.Linear(10, 24), Whiten(24), nn.Linear(24, 2)

    def forward(self, x):
        return self.head(self.whiten(torch.relu(self.stem(x))))


def build(precision):
    net = Net().eval()
    return net.half() if precision == "fp16" else net  # BORN


torch.manual_seed(0)
net = build("fp16")
with torch.no_grad():
    net.stem.bias[:4] = -60.0
    y = net(torch.randn(6, 10).half())
print(y.isnan().any().item())
