"""
title: a point cloud map in UTM coordinates is kept in the float of the point type
expect: silent:precision-loss|downcast|round-trip
thread: https://github.com/autowarefoundation/autoware_universe/issues/3090
measured: pose off by 2.9 cm, mean distance to the map 6.9 cm
widened: pose off by 0.2 cm, mean distance to the map 1.3 cm

Expectation, written first: northings near four million have steps of 25 cm in float32, a wall becomes a staircase and
the fit of a scan to it is off. The scan itself is float32 around the vehicle, where the steps are far below a
millimetre, and its intensities are uint8.
"""
import torch


class Map:
    def __init__(self, xyz):
        self.points = xyz.to(torch.float32)  # BORN

    def around(self, pose, radius):
        near = (self.points.double() - pose).norm(dim=-1) < radius
        return self.points[near].double()


class Scan:
    def __init__(self, xyz, intensity):
        self.points = xyz.to(torch.float32)
        self.intensity = intensity.to(torch.uint8)


class Aligner:
    """point to plane in two dimensions, translation only"""

    def __init__(self, radius=60.0, rounds=8):
        self.radius, self.rounds = radius, rounds

    def __call__(self, world, scan, guess):
        target = world.around(guess, self.radius) - guess
        strong = scan.intensity > 20
        pose = torch.zeros(2, dtype=torch.float64)
        for _ in range(self.rounds):
            moved = scan.points[strong].double() + pose
            near = torch.cdist(moved, target).argmin(-1)
            pose = pose + (target[near] - moved).mean(0)
        return guess + pose, (target[near] - moved).norm(dim=-1).mean()


def walls(gen, n, centre):
    s = torch.linspace(-40, 40, n, dtype=torch.float64)
    flat = torch.full_like(s, 12.0)
    xy = torch.cat([torch.stack([s, flat + 0.3 * (s / 7).sin()], -1), torch.stack([-flat, s], -1)])
    return xy + 0.01 * torch.randn(xy.shape, generator=gen, dtype=torch.float64) + centre


def main():
    gen = torch.Generator().manual_seed(16)
    true = torch.tensor([388096.40, 3948996.11], dtype=torch.float64)
    world = Map(walls(gen, 4000, true))
    local = walls(gen, 500, torch.zeros(2, dtype=torch.float64))
    scan = Scan(local, torch.randint(0, 255, (len(local),), generator=gen))
    pose, rest = Aligner()(world, scan, true + torch.tensor([0.05, -0.04], dtype=torch.float64))
    print(f"pose off by {100 * (pose - true).norm():.1f} cm, mean distance to the map {100 * rest:.1f} cm")


main()
