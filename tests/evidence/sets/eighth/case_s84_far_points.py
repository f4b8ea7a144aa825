"""
title: sending a street scan to a viewer
expect: silent:precision-loss|downcast|round-trip
thread: https://github.com/viser-project/viser/pull/427
measured: distinct points 120 of 1000, worst shift 0.120 m
widened: distinct points 1000 of 1000, worst shift 0.000 m

Expectation, written first: points are sent as float16 positions, and at 300 m from
the origin the steps of float16 are a quarter of a metre, so kerbs and poles melt together.
BORN is the cast of the positions; float32 keeps them apart. The byte colours are as wanted.
"""
import torch


class StreetScan:
    """A kerb of fine points, 300 m away from the origin."""

    def __init__(self, length, spacing, origin):
        count = int(length / spacing)
        along = torch.arange(count) * spacing
        self.xyz = torch.stack([origin[0] + along, torch.full_like(along, origin[1]),
                                0.12 * (along % 1.0 > 0.5).float()], dim=1)
        self.rgb = torch.stack([along / length, 1 - along / length, torch.full_like(along, 0.5)], dim=1)


class Message:
    def __init__(self, scan):
        self.points = scan.xyz.to(torch.float16)  # BORN
        self.colours = (255 * scan.rgb).round().to(torch.uint8)


class Viewer:
    def receive(self, message):
        self.points = message.points.float()
        self.colours = message.colours.float() / 255

    def distinct(self):
        return len(torch.unique(self.points, dim=0))

    def worst_shift(self, scan):
        return (self.points - scan.xyz).norm(dim=1).max().item()


def main():
    scan = StreetScan(length=20.0, spacing=0.02, origin=(310.0, 280.0))
    viewer = Viewer()
    viewer.receive(Message(scan))
    print("distinct points %d of %d, worst shift %.3f m"
          % (viewer.distinct(), len(scan.xyz), viewer.worst_shift(scan)))


if __name__ == "__main__":
    main()
