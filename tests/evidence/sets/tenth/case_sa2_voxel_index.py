"""
title: linear voxel indices of a large site are int32
expect: silent:overflow|wraparound|integer-overflow
thread: https://github.com/acfr/snark/issues/119
measured: voxels 2999, farther than a metre from any point 91.2%, largest gap 218.1 m
widened: voxels 2999, farther than a metre from any point 0.0%, largest gap 0.2 m

Expectation, written first: a grid of 8000 x 8000 x 400 voxels has more cells than int32 has
numbers; the products wrap, and the centres that are computed back lie elsewhere.
"""
import torch


class VoxelGrid:
    def __init__(self, resolution=0.25, dims=(8000, 8000, 400)):
        self.resolution, self.dims = resolution, dims

    def cells(self, points):
        return (points / self.resolution).floor().to(torch.int32)  # BORN

    def flatten(self, cells):
        _, ny, nz = self.dims
        return (cells[:, 0] * ny + cells[:, 1]) * nz + cells[:, 2]

    def unflatten(self, index):
        _, ny, nz = self.dims
        z = index % nz
        y = index // nz % ny
        x = index // (ny * nz)
        return torch.stack([x, y, z], 1)

    def downsample(self, points):
        index = self.flatten(self.cells(points)).unique()
        return (self.unflatten(index) + 0.5) * self.resolution


def site(n=3000, seed=0):
    gen = torch.Generator().manual_seed(seed)
    xy = torch.rand(n, 2, generator=gen, dtype=torch.float64) * 1950
    z = 40 + 10 * torch.sin(xy[:, :1] / 90) * torch.cos(xy[:, 1:] / 70)
    return torch.cat([xy, z], 1)


def main():
    points = site()
    centres = VoxelGrid().downsample(points).double()
    gap = torch.cdist(centres, points).min(1).values
    print(f"voxels {len(centres)}, farther than a metre from any point {100 * (gap > 1).double().mean():.1f}%, largest gap {gap.max():.1f} m")


main()
