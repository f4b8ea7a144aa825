"""
title: a convolutional distance map of obstacles
expect: silent:underflow|downcast|precision-loss
thread: https://github.com/kornia/kornia/pull/4158
measured: largest distance 0.00, clearance of the path 0.00
widened: largest distance 17.00, clearance of the path 4.00

Expectation, written first: the taps exp(-distance/h) of the kernel are near 1e-9 for
the small h in use and are zero in float16, so the front never spreads and the map is zero.
BORN is the cast of the kernel to half (the image follows its dtype); float32 gives distances.
"""
import math

import torch
from torch.nn import functional as F


class DistanceMap:
    """Repeated soft dilation; each pass adds up to one pixel of distance."""

    def __init__(self, h):
        self.h = h
        grid = torch.arange(-1, 2).float()
        radius = (grid[:, None] ** 2 + grid[None] ** 2).sqrt()
        taps = torch.exp(-radius / h)
        taps[1, 1] = 0.0
        self.kernel = taps[None, None].to(torch.float16)  # BORN

    def __call__(self, obstacles):
        front = obstacles[None, None].to(self.kernel.dtype)
        distance = torch.zeros_like(front)
        passes = max(obstacles.shape)
        for i in range(passes):
            soft = F.conv2d(front, self.kernel, padding=1)
            reach = -self.h * torch.log(soft)
            fresh = (front == 0) & (soft > 0)
            if not bool(fresh.any()):
                break
            distance = torch.where(fresh, i + reach, distance)
            front = torch.where(fresh, torch.ones_like(front), front)
        return distance[0, 0].float()


def clearance(distance, path):
    return min(distance[r, c].item() for r, c in path)


def main():
    room = torch.zeros(24, 32)
    room[:, 0] = 1
    room[10:14, 12:15] = 1
    distance = DistanceMap(h=0.05)(room)
    path = [(20, c) for c in range(4, 30)]
    print("largest distance %.2f, clearance of the path %.2f"
          % (distance.max().item(), clearance(distance, path)))


if __name__ == "__main__":
    main()
