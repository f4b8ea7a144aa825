"""
title: a laser scan in map coordinates is sorted into two millimetre voxels with 32 bit indices
expect: silent:overflow|integer-overflow|wraparound
thread: https://github.com/acfr/snark/issues/119
measured: voxels 7991, points in the fullest 19, mean reflectance 0.50
widened: voxels 30982, points in the fullest 9, mean reflectance 0.50

Expectation, written first: a northing of five million metres over 0.002 is 2.6e9, beyond int32; the conversion gives
the same smallest integer for every point, so a whole row of voxels falls together. The innocent suspect is the
reflectance, averaged per voxel from float16 values: only its last digits are touched.
"""
import torch


class Scan:
    def __init__(self, xyz, reflectance):
        self.xyz = xyz
        self.reflectance = reflectance.to(torch.float16)

    def __len__(self):
        return len(self.xyz)


class VoxelGrid:
    def __init__(self, resolution):
        self.resolution = resolution

    def indices(self, scan):
        return torch.floor(scan.xyz / self.resolution).to(torch.int32)  # BORN

    def reduce(self, scan):
        cells, member = torch.unique(self.indices(scan), dim=0, return_inverse=True)
        count = torch.bincount(member)
        centre = torch.zeros(len(cells), 3, dtype=torch.float64).index_add_(0, member, scan.xyz) / count[:, None]
        bright = torch.zeros(len(cells)).index_add_(0, member, scan.reflectance.float()) / count
        return centre, bright, count


class Target:
    """a tilted calibration board of forty by forty centimetres"""

    def __init__(self, easting, northing, height):
        self.corner = torch.tensor([easting, northing, height], dtype=torch.float64)

    def scan(self, n, gen):
        uv = torch.rand(n, 2, generator=gen, dtype=torch.float64) * 0.4
        offset = torch.stack([uv[:, 0], uv[:, 1], 0.2 * uv[:, 1]], 1)
        return Scan(self.corner + offset, 0.3 + 0.4 * (uv[:, 0] > 0.2))


def main():
    gen = torch.Generator().manual_seed(8)
    board = Target(easting=412_300.0, northing=5_312_400.0, height=510.0).scan(60_000, gen)
    centre, bright, count = VoxelGrid(0.002).reduce(board)
    print(f"voxels {len(centre)}, points in the fullest {int(count.max())}, mean reflectance {bright.mean():.2f}")


main()
