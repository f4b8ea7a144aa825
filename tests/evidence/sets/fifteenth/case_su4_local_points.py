"""
title: a scan is shifted to its own centre and shown in float16
expect: clean
thread: https://github.com/viser-project/viser/pull/427
measured: corners 90.0 to 90.0 degrees, heading 12.00, roughness 5.1 mm

Expectation, written first: the float64 map coordinates lose their large offset before anything is narrowed, a room of
some metres in float16 has millimetre steps, and the planes that are fitted to thousands of points are the same.
"""
import numpy as np
import torch


class Scan:
    """floor and two walls of a room, in map coordinates with half a centimetre of noise"""

    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        u = rng.uniform(-2, 2, (3, n, 2))
        floor = np.column_stack([u[0], np.full(n, -1.2)])
        wall = np.column_stack([u[1][:, 0], np.full(n, 1.9), u[1][:, 1]])
        side = np.column_stack([np.full(n, -1.7), u[2]])
        local = np.concatenate([floor, wall, side]) + 0.005 * rng.normal(size=(3 * n, 3))
        turn = np.deg2rad(12.0)
        rotate = np.array([[np.cos(turn), -np.sin(turn), 0], [np.sin(turn), np.cos(turn), 0], [0, 0, 1]])
        self.xyz = local @ rotate.T + np.array([388_096.25, 3_948_996.5, 41.0])
        self.colour = rng.integers(0, 256, (3 * n, 3)).astype(np.uint8)
        self.part = np.repeat(np.arange(3), n).astype(np.int8)


class PointCloudHandle:
    """what is sent to the viewer"""

    def __init__(self, scan, dtype=np.float16):
        self.origin = scan.xyz.mean(0).round()
        self.points = torch.from_numpy((scan.xyz - self.origin).astype(dtype))
        self.colours = torch.from_numpy(scan.colour)
        self.part = torch.from_numpy(scan.part)

    def plane(self, k):
        q = self.points[self.part == k].double()
        centre = q.mean(0)
        normal = torch.linalg.svd(q - centre, full_matrices=False).Vh[-1]
        rough = ((q - centre) @ normal).square().mean().sqrt()
        return normal, centre + torch.from_numpy(self.origin), rough

    def brightness(self):
        return self.colours.float().mean().item()


def angle(a, b):
    return torch.rad2deg(torch.arccos((a @ b).abs().clamp(max=1))).item()


def main():
    cloud = PointCloudHandle(Scan(3000, seed=6))
    planes = [cloud.plane(k) for k in range(3)]
    corners = [angle(planes[i][0], planes[j][0]) for i, j in ((0, 1), (0, 2), (1, 2))]
    heading = torch.rad2deg(torch.atan2(planes[2][0][1], planes[2][0][0])).item() % 180
    rough = 1000 * max(p[2].item() for p in planes)
    print(f"corners {min(corners):.1f} to {max(corners):.1f} degrees, heading {heading:.2f}, roughness {rough:.1f} mm")


main()
