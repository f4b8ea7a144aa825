"""
title: the transformation of a spatial transformer is predicted under autocast, the image that it samples is float32
expect: collision
thread: https://github.com/walkwithfastai/walkwithfastai.github.io/issues/25
fix_at: 34, 39

Expectation, written first: theta leaves the localisation net as bfloat16, affine_grid keeps
it, and grid_sample outside of the region refuses a grid of another dtype than the image.
"""
import torch
from torch import nn
import torch.nn.functional as F


class Localiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 5, stride=2, padding=2)
        self.fc = nn.Linear(8, 6)
        nn.init.zeros_(self.fc.weight)
        self.fc.bias.data = torch.tensor([1.0, 0, 0, 0, 1, 0])

    def forward(self, x):
        h = torch.relu(self.conv(x)).mean((2, 3))
        return self.fc(h).view(-1, 2, 3)  # BORN


class Aligner:
    def __init__(self):
        self.net = Localiser()
        self.opt = torch.optim.Adam(self.net.parameters(), lr=1e-2)

    def warp(self, image, theta):
        grid = F.affine_grid(theta, image.shape, align_corners=False)
        return F.grid_sample(image, grid, align_corners=False)  # COLLIDES

    def step(self, moving, fixed):
        with torch.autocast("cpu", dtype=torch.bfloat16):  # BORN
            theta = self.net(moving)
        loss = (self.warp(moving, theta) - fixed).pow(2).mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item()


def blobs(shift, size=32):
    axis = torch.arange(size).float()
    cy, cx = 14.0 + shift, 18.0 - shift
    d = (axis[:, None] - cy) ** 2 + (axis[None] - cx) ** 2
    return torch.exp(-d / 40).expand(4, 1, size, size)


torch.manual_seed(0)
aligner = Aligner()
for _ in range(5):
    last = aligner.step(blobs(2.0), blobs(0.0))
print(f"misfit {last:.5f}")
