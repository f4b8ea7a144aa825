"""
title: pixel coordinates of a flow network are half; the flow is half as well
expect: silent:precision-loss|downcast|round-trip
thread: https://github.com/pytorch/pytorch/issues/89836
measured: residual after stabilising: 49.7% of the picture
widened: residual after stabilising: 6.6% of the picture

Expectation, written first: beyond pixel 1024 half has whole numbers only, beyond 2048 even
ones; sums of coordinates and flow lose the fraction that makes the flow. The flow by itself
is of a few pixels, where half keeps two thousandths.
"""
import torch
import torch.nn.functional as F


def base_coordinates(w, dtype):
    return torch.arange(w, dtype=torch.float32).to(dtype)  # BORN


class Stabiliser:
    def __init__(self, w, dtype):
        self.w = w
        self.x = base_coordinates(w, dtype)

    def warp(self, rows, flow):
        where = (self.x + flow.to(self.x.dtype)).float()
        grid = torch.zeros(1, len(rows), self.w, 2)
        grid[..., 0] = 2 * where / (self.w - 1) - 1
        grid[..., 1] = torch.linspace(-1, 1, len(rows))[:, None]
        return F.grid_sample(rows[None, None], grid, align_corners=True)[0, 0]


def texture(h, w, shift):
    x = torch.arange(w, dtype=torch.float64) + shift
    waves = torch.sin(2 * torch.pi * x / 7) + 0.5 * torch.sin(2 * torch.pi * x / 11 + 1)
    return waves.float().expand(h, w)


def main(h=4, w=3840):
    flow = 1.3 + 0.9 * torch.sin(torch.linspace(0, 20, w))
    predicted = flow.to(torch.float16)
    stabiliser = Stabiliser(w, torch.float16)  # BORN
    out = stabiliser.warp(texture(h, w, 0.0), predicted)
    exact = texture(h, w, flow.double())
    err = (out - exact)[:, 4:-8]
    print(f"residual after stabilising: {100 * (err.norm() / exact.norm()).item():.1f}% of the picture")


main()
