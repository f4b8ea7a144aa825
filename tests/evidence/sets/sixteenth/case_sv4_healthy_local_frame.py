"""
title: survey points are taken to a local frame in double precision and then kept in float32
expect: clean
thread: https://github.com/Aurtechmx/openlidarviewer/pull/834
measured: checkpoints 50.4 mm above the ground, RMS 54.7 mm

Expectation, written first: northings near four million are first made small against an origin in float64; within a
kilometre float32 has steps of six hundredths of a millimetre, and the vertical accuracy of centimetres is measured
rightly.
"""
import torch


class Frame:
    def __init__(self, header_min):
        self.origin = (header_min / 1000).floor() * 1000

    def local(self, world):
        return (world - self.origin).to(torch.float32)


class Terrain:
    """a grid of mean heights from local points"""

    def __init__(self, points, cell=1.0, size=200):
        self.cell, self.size = cell, size
        key = self.key(points)
        total = torch.zeros(size * size).index_add_(0, key, points[:, 2])
        count = torch.zeros(size * size).index_add_(0, key, torch.ones(len(points)))
        self.height = total / count.clamp(min=1)
        self.filled = count > 0

    def key(self, points):
        cell = (points[:, :2] / self.cell).long().clamp(0, self.size - 1)
        return cell[:, 1] * self.size + cell[:, 0]

    def residuals(self, checkpoints):
        key = self.key(checkpoints)
        key, z = key[self.filled[key]], checkpoints[self.filled[key], 2]
        return z - self.height[key]


def survey(n, corner, gen, lift=0.0):
    xy = 200 * torch.rand(n, 2, generator=gen, dtype=torch.float64)
    z = 12.0 + 0.8 * torch.sin(xy[:, 0].floor() / 9) + lift + 0.02 * torch.randn(n, generator=gen, dtype=torch.float64)
    return torch.cat([xy + corner, z[:, None]], -1)


def main():
    gen = torch.Generator().manual_seed(9)
    corner = torch.tensor([271_000.0, 3_290_000.0], dtype=torch.float64)
    cloud = survey(300_000, corner, gen)
    marks = survey(2000, corner, gen, lift=0.05)
    frame = Frame(torch.cat([corner, torch.zeros(1, dtype=torch.float64)]))
    terrain = Terrain(frame.local(cloud).to(torch.get_default_dtype()))
    dz = terrain.residuals(frame.local(marks))
    print(f"checkpoints {1000 * dz.mean():.1f} mm above the ground, RMS {1000 * dz.square().mean().sqrt():.1f} mm")


main()
