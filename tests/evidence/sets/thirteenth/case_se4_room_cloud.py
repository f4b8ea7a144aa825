"""
title: the point cloud of a room is sent to the viewer in float16
expect: clean
thread: https://github.com/viser-project/viser/pull/427
measured: occupied cells 1405, walls at 2.55, 2.55, 3.05, 3.05 m, floor at -1.20 m

Expectation, written first: the suspect is the float16 cast of the coordinates, but the room lies around the origin and
within four metres, where the steps are two millimetres and less; voxels of a quarter of a metre, wall distances and
the floor's height are those of a wide run.
"""
import torch


class Room:
    def __init__(self, half_width=2.55, half_depth=3.05, floor=-1.2):
        self.half_width, self.half_depth, self.floor = half_width, half_depth, floor

    def scan(self, n, gen):
        side = torch.randint(0, 5, (n,), generator=gen)
        u = 2 * torch.rand(n, 2, generator=gen) - 1
        height = self.floor + 2.4 * (u[:, 1] + 1) / 2
        x = torch.where(side < 2, (2.0 * side - 1) * self.half_width, u[:, 0] * self.half_width)
        y = torch.where((side >= 2) & (side < 4), (2.0 * side - 5) * self.half_depth, 0 * x)
        y = torch.where(side < 2, u[:, 0] * self.half_depth, y)
        y = torch.where(side == 4, u[:, 1] * self.half_depth, y)
        z = torch.where(side == 4, torch.full_like(x, self.floor), height)
        return torch.stack([x, y, z], -1) + 0.004 * torch.randn(n, 3, generator=gen)


class Message:
    """what goes over the wire"""

    def __init__(self, points, precision="float16"):
        self.points = points.to({"float16": torch.float16, "float32": torch.float32}[precision])

    def decode(self):
        return self.points.float()


class Viewer:
    def __init__(self, cell=0.25):
        self.cell = cell

    def occupied(self, points):
        return len(torch.unique(torch.floor((points + 0.1) / self.cell).long(), dim=0))

    def wall(self, points, axis, sign):
        coordinate = sign * points[:, axis]
        near = coordinate > coordinate.max() - 0.1
        return coordinate[near].mean().item()

    def floor(self, points):
        low = points[:, 2] < points[:, 2].min() + 0.08
        return points[low, 2].median().item()


def main():
    cloud = Room().scan(60_000, torch.Generator().manual_seed(51))
    viewer, seen = Viewer(), Message(cloud).decode()
    walls = ", ".join(f"{viewer.wall(seen, a, s):.2f}" for a in (0, 1) for s in (1, -1))
    print(f"occupied cells {viewer.occupied(seen)}, walls at {walls} m, floor at {viewer.floor(seen):.2f} m")


main()
