"""
title: triangulated points of a satellite pair are gathered in single precision map coordinates
expect: silent:precision-loss|downcast
thread: https://github.com/centreborelli/s2p/pull/82
measured: empty cells 50.0%, mean height error 0.549 m
widened: empty cells 0.1%, mean height error 0.000 m

Expectation, written first: northings near five million metres have a float32 step of half a metre, as large as the
grid cell, so whole rows of the elevation grid stay empty and heights land in a neighbour's row. The confidences
in float16 weigh points of the same cell, which have the same height.
"""
import numpy as np
import torch


class Triangulation:
    """one tile: ground points with easting, northing, height and colour"""

    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        self.east = 501_234.0 + 60 * rng.random(n)
        self.north = 5_412_345.0 + 60 * rng.random(n)
        self.height = 100 + 2.5 * np.floor((self.north - 5_412_345.0) / 1.25) % 20
        self.colour = rng.integers(0, 256, (n, 3)).astype(np.uint8)
        self.confidence = rng.uniform(0.2, 1.0, n).astype(np.float16)

    def cloud(self):
        xyz = np.stack([self.east, self.north, self.height], axis=1)
        return xyz.astype(np.float32), self.colour, self.confidence  # BORN


class Rasteriser:
    def __init__(self, origin, size, resolution):
        self.origin, self.size, self.resolution = torch.tensor(origin, dtype=torch.float64), size, resolution

    def __call__(self, xyz, weight):
        cell = ((xyz[:, :2].double() - self.origin) / self.resolution).floor().long()
        inside = ((cell >= 0) & (cell < self.size)).all(-1)
        flat = cell[inside, 1] * self.size + cell[inside, 0]
        total = torch.zeros(self.size ** 2, dtype=torch.float64).index_add_(0, flat, xyz[inside, 2].double() * weight[inside])
        count = torch.bincount(flat, minlength=self.size ** 2)
        share = torch.bincount(flat, weights=weight[inside], minlength=self.size ** 2)
        return (total / share).view(self.size, self.size), count.view(self.size, self.size)


def truth(raster):
    row = (torch.arange(raster.size) + 0.5) * raster.resolution
    return (100 + 2.5 * (row / 1.25).floor() % 20)[:, None].expand(raster.size, raster.size)


def main():
    tile = Triangulation(400_000, seed=1)
    xyz, colour, confidence = tile.cloud()
    dark = torch.from_numpy(colour).sum(-1) < 6
    weight = torch.from_numpy(confidence).double().masked_fill(dark, 1e-3)
    raster = Rasteriser((501_234.0, 5_412_345.0), size=240, resolution=0.25)
    dsm, count = raster(torch.from_numpy(xyz), weight)
    empty = (count == 0).double().mean().item()
    error = (dsm - truth(raster))[count > 0].abs().mean().item()
    print(f"empty cells {100 * empty:.1f}%, mean height error {error:.3f} m")


main()
