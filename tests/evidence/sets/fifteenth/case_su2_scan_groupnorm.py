"""
title: a brain segmentation network squares its activations for group statistics in float16
expect: silent:overflow|downcast
thread: https://github.com/neuroneural/brainchop-cli/pull/56
measured: mean dice 0.139
widened: mean dice 0.988

Expectation, written first: convolution outputs of several hundred fit float16 but their squares do not; the variance
is infinite and the channel becomes flat, so the labels collapse. The volume itself, multiples of 1/256 below one, and
the uint8 label map lose nothing.
"""
import torch
import torch.nn.functional as F
from torch import nn


class GroupNorm(nn.Module):
    """statistics per channel, as the exported graph spells them out"""

    def __init__(self, channels, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.eps = eps

    def forward(self, x):
        dims = (2, 3)
        mean = x.mean(dims, keepdim=True)
        var = (x * x).float().mean(dims, keepdim=True) - mean.float() ** 2  # BORN
        x = (x - mean).float() * torch.rsqrt(var + self.eps)
        return (x * self.weight[:, None, None] + self.bias[:, None, None]).to(mean.dtype)


class MeshNet(nn.Module):
    def __init__(self, channels=12, classes=4, gain=900.0):
        super().__init__()
        gen = torch.Generator().manual_seed(2)
        w = torch.rand(channels, 1, 3, 3, generator=gen)
        self.w1 = nn.Parameter(w / w.sum((1, 2, 3), keepdim=True) * gain)
        self.norm = GroupNorm(channels)
        self.head = nn.Conv2d(channels, classes, 1)

    def features(self, x):
        x = F.conv2d(x.float(), self.w1, padding=1).half()  # BORN
        return self.norm(x)

    def forward(self, x):
        return self.head(self.features(x).float())


def phantom(n, gen):
    """nested discs with four intensities"""
    axis = torch.linspace(-1, 1, n)
    radius = (axis[:, None] ** 2 + axis[None] ** 2).sqrt()
    label = (radius < 0.9).long() + (radius < 0.6).long() + (radius < 0.3).long()
    level = torch.tensor([16, 80, 144, 220])[label] + torch.randint(-12, 13, (n, n), generator=gen)
    return (level / 256).to(torch.float16)[None, None], label[None]


def fit_head(net, x, y):
    optimizer = torch.optim.Adam(net.head.parameters(), lr=0.05)
    with torch.no_grad():
        feature = net.features(x).float()
    for _ in range(120):
        optimizer.zero_grad()
        F.cross_entropy(net.head(feature), y).backward()
        optimizer.step()


def dice(pred, y, classes):
    parts = [2 * ((pred == c) & (y == c)).sum() / ((pred == c).sum() + (y == c).sum()) for c in range(classes)]
    return torch.stack(parts).double().mean().item()


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(9)
    net = MeshNet()
    fit_head(net, *phantom(48, gen))
    x, y = phantom(64, gen)
    with torch.no_grad():
        pred = net(x).argmax(1).to(torch.uint8)
    print(f"mean dice {dice(pred, y, 4):.3f}")


main()
