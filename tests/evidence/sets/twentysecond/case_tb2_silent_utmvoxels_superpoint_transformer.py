"""
title: voxels show a grid of bands along one axis, because the tile's UTM positions became float32 before centring
expect: silent:precision-loss|downcast|cancellation
thread: https://github.com/drprojects/superpoint_transformer/issues/72
measured: points 20000 voxels 7405 | occupied columns 200 occupied rows 41 | distance between neighbouring y values 0.500
widened: points 20000 voxels 15822 | occupied columns 200 occupied rows 200 | distance between neighbouring y values 0.001; innocent: points 20000 voxels 7405 | occupied columns 200 occupied rows 41 | distance between neighbouring y values 0.500
suspect: line 55 - innocent: after centring the grid indices are a few hundred, int32 holds them

Expectation, written first: the reader turns the las coordinates into float32 at once. At a northing of 5.4e6 float32
has steps of 0.5 m, so the later subtraction of the tile's corner leaves positions on half-metre lines and most 0.1 m
voxels along y stay empty. Along x (3.2e5, steps of 0.03) it is slight. The int32 cast of grid indices is fine.
"""
import numpy as np
import torch


class Data:
    def __init__(self, pos, rgb):
        self.pos = pos
        self.rgb = rgb

    @property
    def num_points(self):
        return self.pos.shape[0]


class LasFile:
    def __init__(self, n=20000, seed=8):
        rng = np.random.default_rng(seed)
        self.x = 320_000.0 + rng.uniform(0, 20, n)
        self.y = 5_412_340.0 + rng.uniform(0, 20, n)
        self.z = 115.0 + 0.1 * rng.standard_normal(n)
        self.red = rng.integers(0, 65536, (n, 3))


def read_tile(las):
    xyz = np.stack([las.x, las.y, las.z], axis=-1)
    pos = torch.from_numpy(xyz).float()  # BORN
    rgb = torch.from_numpy(las.red / 65535).float()
    return Data(pos, rgb)


class Center:
    def __call__(self, data):
        data.pos = data.pos - data.pos.min(dim=0).values
        return data


class GridSampling3D:
    def __init__(self, size=0.1):
        self.size = size

    def __call__(self, data):
        coords = torch.div(data.pos, self.size, rounding_mode="floor")
        grid = coords.to(torch.int32)
        data.grid = grid
        _, data.cluster = torch.unique(grid[:, :2], dim=0, return_inverse=True)
        return data


def spacing(values):
    levels = torch.unique(values)
    return (levels[1:] - levels[:-1]).median().item()


def main():
    data = read_tile(LasFile())
    for transform in (Center(), GridSampling3D(0.1)):
        data = transform(data)
    rows = [int(torch.unique(data.grid[:, axis]).numel()) for axis in range(2)]
    print("points", data.num_points, "voxels", int(data.cluster.max()) + 1)
    print("occupied columns", rows[0], "occupied rows", rows[1])
    print(f"distance between neighbouring y values {spacing(data.pos[:, 1]):.3f}")


if __name__ == "__main__":
    main()
