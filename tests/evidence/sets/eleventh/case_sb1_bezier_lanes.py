"""
title: lane points are control points times a Bernstein matrix that numpy made
expect: collision
thread: https://github.com/mo-vic/BezierLaneNet/issues/3
fix_at: 22, 23, 30, 48, 51, 68

Expectation, written first: the Bernstein matrix is built with numpy and kept as a float64 tensor; the predicted
control points are float32, and the product of the two is refused.
"""
from math import comb

import numpy as np
import torch
from torch import nn


class BezierSampler(nn.Module):
    def __init__(self, degree=3, points=20):
        super().__init__()
        t = np.linspace(0, 1, points)
        table = [[comb(degree, k) * s ** k * (1 - s) ** (degree - k) for k in range(degree + 1)] for s in t]
        bernstein = torch.as_tensor(np.array(table))  # BORN
        self.register_buffer("bernstein", bernstein)

    def fit(self, xy):
        solution = torch.linalg.lstsq(self.bernstein.double(), xy.double()).solution
        return solution.to(xy.dtype)

    def forward(self, control):
        return torch.tensordot(control.transpose(1, 2), self.bernstein, dims=([2], [1]))  # COLLIDES


class LaneHead(nn.Module):
    def __init__(self, channels=12, degree=3):
        super().__init__()
        self.degree = degree
        self.backbone = nn.Sequential(nn.Conv2d(1, channels, 5, stride=4, padding=2), nn.ReLU(),
                                      nn.AdaptiveAvgPool2d(4), nn.Flatten())
        self.control = nn.Linear(channels * 16, 2 * (degree + 1))

    def forward(self, image):
        return self.control(self.backbone(image)).view(-1, self.degree + 1, 2)


class LaneLoss(nn.Module):
    def __init__(self, beta=0.1):
        super().__init__()
        self.sampler, self.beta = BezierSampler(), beta

    def forward(self, control, lane):
        points = self.sampler(control).transpose(1, 2)
        return nn.functional.smooth_l1_loss(points, lane, beta=self.beta)


def lanes(n, points=20, seed=0):
    gen = torch.Generator().manual_seed(seed)
    y = torch.linspace(0, 1, points)
    a, b = torch.rand(2, n, 1, generator=gen)
    x = a + (b - a) * y + 0.2 * (y * (1 - y))
    image = torch.zeros(n, 1, 32, 32)
    rows = (y * 31).long()
    for i in range(n):
        image[i, 0, rows, (x[i].clamp(0, 1) * 31).long()] = 1
    return image, torch.stack([x, y.expand(n, -1)], -1)


torch.manual_seed(0)
head, loss_fn = LaneHead(), LaneLoss()
opt = torch.optim.Adam(head.parameters(), 1e-2)
image, lane = lanes(16)
for epoch in range(5):
    loss = loss_fn(head(image), lane)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(f"{loss.item():.4f}")
