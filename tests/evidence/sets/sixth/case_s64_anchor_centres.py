"""
title: boxes are decoded from anchors whose centres are bfloat16; the offsets in sixteenths may be half
expect: silent:precision-loss|downcast|round-trip
"""
import torch

torch.manual_seed(909)


class Grid:
    def __init__(self, cells=200, stride=5):
        centre = (torch.arange(cells) + 0.5) * stride
        y, x = torch.meshgrid(centre, centre, indexing="ij")
        self.centres = torch.stack([x, y], dim=-1).flatten(0, 1)


def decode(grid, cells, offsets, size):
    centres = grid.centres.bfloat16().float()[cells]  # BORN
    middle = centres + offsets.half().float()
    return torch.cat([middle - size / 2, middle + size / 2], dim=1)


def overlap(a, b):
    low, high = torch.maximum(a[:, :2], b[:, :2]), torch.minimum(a[:, 2:], b[:, 2:])
    inner = (high - low).clamp(min=0).prod(1)
    return inner / ((a[:, 2:] - a[:, :2]).prod(1) + (b[:, 2:] - b[:, :2]).prod(1) - inner)


grid = Grid()
cells = torch.randint(0, 40000, (800,))
offsets = torch.randint(-64, 64, (800, 2)) / 16
size = torch.full((800, 1), 10.0)
exact = grid.centres[cells] + offsets
boxes = torch.cat([exact - size / 2, exact + size / 2], dim=1)
found = overlap(decode(grid, cells, offsets, size), boxes)
print("overlap", round(found.mean().item(), 3), "found at 0.75", round((found > 0.75).float().mean().item(), 3))
