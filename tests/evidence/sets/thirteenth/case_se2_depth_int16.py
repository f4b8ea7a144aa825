"""
title: a simulated depth camera publishes signed millimetres and far walls end up behind the robot
expect: silent:overflow|integer-overflow|wraparound
thread: https://github.com/innate-inc/innate-os/pull/536
measured: points behind the camera 4.4%, farthest 32.5 m, wall ahead at -6.7 m
widened: points behind the camera 0.0%, farthest 48.0 m, wall ahead at 39.2 m

Expectation, written first: 32.767 m is the last distance that fits, everything farther becomes negative and is
projected behind the camera. The innocent suspect is the float16 table of pixel rays: its numbers lie in [-1, 1] and
three digits are enough for what is printed.
"""
from dataclasses import dataclass

import torch


@dataclass
class Intrinsics:
    width: int = 160
    height: int = 120
    focal: float = 110.0

    def rays(self):
        v, u = torch.meshgrid(torch.arange(self.height), torch.arange(self.width), indexing="ij")
        x = (u - self.width / 2 + 0.5) / self.focal
        y = (v - self.height / 2 + 0.5) / self.focal
        return torch.stack([x, y, torch.ones_like(x)], -1).to(torch.float16)


class Corridor:
    """a floor, a ceiling and a wall at the end"""

    def __init__(self, end=48.0, half_height=2.0, half_width=9.0):
        self.end, self.half_height, self.half_width = end, half_height, half_width

    def render(self, rays):
        rays = rays.double()
        vertical = self.half_height / rays[..., 1].abs()
        sideways = self.half_width / rays[..., 0].abs()
        return torch.minimum(torch.minimum(vertical, sideways), torch.full_like(vertical, self.end))


class DepthDriver:
    scale = 1000

    def publish(self, depth_m):
        millimetres = (depth_m * self.scale).round()
        return millimetres.to(torch.int16)  # BORN


class CloudBuilder:
    def __init__(self, intrinsics, scale):
        self.rays, self.scale = intrinsics.rays(), scale

    def __call__(self, message):
        depth = message.double() / self.scale
        return self.rays.double() * depth[..., None]


def main():
    camera = Intrinsics()
    depth = Corridor().render(camera.rays())
    cloud = CloudBuilder(camera, DepthDriver.scale)(DepthDriver().publish(depth))
    z = cloud[..., 2]
    middle = z[50:70, 70:90].mean().item()
    print(f"points behind the camera {100 * (z < 0).double().mean():.1f}%, farthest {z.max():.1f} m, wall ahead at {middle:.1f} m")


main()
