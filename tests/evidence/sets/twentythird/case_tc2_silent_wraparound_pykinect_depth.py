"""
title: depth aligned to the colour camera is cast to uint8, everything beyond 255 mm wraps
expect: silent:integer-overflow|wraparound|overflow|downcast
thread: https://github.com/KonstantinosAng/PyKinect2-Mapper-Functions/issues/3
measured: frame 0: median depth 145 mm, hand at 52 mm, nearer than 0.5 m: 100% | frame 1: median depth 145 mm, hand at 50 mm, nearer than 0.5 m: 100%
widened: frame 0: median depth 2581 mm, hand at 820 mm, nearer than 0.5 m: 0% | frame 1: median depth 2582 mm, hand at 803 mm, nearer than 0.5 m: 0%
innocent: frame 0: median depth 145 mm, hand at 52 mm, nearer than 0.5 m: 100% | frame 1: median depth 145 mm, hand at 50 mm, nearer than 0.5 m: 100%
suspect: line 27, pixel coordinates below 200 fit in int16

Expectation, written first: the aligned frame holds millimetres as large as the uint16 of the sensor and is returned as uint8. Values are
kept modulo 256, so the wall at 2.4 m and the hand at 0.8 m come out below a quarter of a metre and the obstacle check fires everywhere.
A 16 or 32 bit result is right. The pixel coordinates in int16 never exceed 1920 and are innocent.
"""
import torch


class CoordinateMapper:
    """maps colour pixels to depth pixels of a Kinect v2"""

    def __init__(self, color_hw=(108, 192), depth_hw=(106, 128)):
        self.color_hw, self.depth_hw = color_hw, depth_hw

    def color_to_depth_points(self):
        v, u = torch.meshgrid(torch.arange(self.color_hw[0]), torch.arange(self.color_hw[1]), indexing="ij")
        du = (u - self.color_hw[1] / 2) * 0.62 + self.depth_hw[1] / 2 + 1.3
        dv = (v - self.color_hw[0] / 2) * 0.93 + self.depth_hw[0] / 2
        return torch.stack([du, dv], -1).round().to(torch.int16)


def depth_2_color_space(mapper, depth_frame):
    points = mapper.color_to_depth_points().long()
    u, v = points[..., 0], points[..., 1]
    h, w = mapper.depth_hw
    valid = (u >= 0) & (u < w) & (v >= 0) & (v < h)
    aligned = torch.zeros(mapper.color_hw, dtype=torch.int32)
    aligned[valid] = depth_frame[v[valid], u[valid]]
    return aligned.to(torch.uint8)  # BORN


class ObstacleMonitor:
    def __init__(self, mapper, near_mm=500):
        self.mapper = mapper
        self.near_mm = near_mm

    def update(self, depth_frame):
        aligned = depth_2_color_space(self.mapper, depth_frame).to(torch.int32)  # BORN
        seen = aligned > 0
        return {
            "near": float(((aligned < self.near_mm) & seen).sum() / seen.sum()),
            "median": int(aligned[seen].median()),
            "hand": int(aligned[50:60, 90:100].float().mean()),
        }


def capture(g, shape=(106, 128)):
    h, w = shape
    wall = 2400 + 3 * torch.arange(w)[None, :] + torch.zeros(h, 1, dtype=torch.int64)
    frame = wall + torch.randint(-4, 5, shape, generator=g)
    y, x = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
    hand = (y - 53) ** 2 + (x - 66) ** 2 < 14 ** 2
    frame[hand] = 820 + torch.randint(-3, 4, (int(hand.sum()),), generator=g)
    frame[torch.rand(shape, generator=g) < 0.01] = 0
    return frame.to(torch.int32)


g = torch.Generator().manual_seed(0)
monitor = ObstacleMonitor(CoordinateMapper())
for i in range(2):
    state = monitor.update(capture(g))
    print("frame %d: median depth %d mm, hand at %d mm, nearer than 0.5 m: %.0f%%"
          % (i, state["median"], state["hand"], 100 * state["near"]))
