"""
title: video frames are kept in half precision and warped by a predicted motion
expect: collision
thread: https://github.com/pytorch/pytorch/issues/94733
fix_at: 23, 27, 40, 48, 49, 53, 54

Expectation, written first: the buffer turns frames to float16 to save memory while the sampling grid is computed in
float32 for its accuracy; grid_sample wants image and grid in one dtype.
"""
import math

import torch
import torch.nn.functional as F


class FrameBuffer:
    """the last few frames, compactly"""

    def __init__(self, size):
        self.size, self.frames = size, []

    def push(self, frame):
        self.frames.append(frame.half())  # BORN
        self.frames = self.frames[-self.size :]

    def window(self):
        return torch.stack(self.frames)


class MotionEstimator:
    """the roll of each frame against the last one"""

    def __init__(self, rate=0.04):
        self.rate = rate

    def theta(self, count):
        age = torch.arange(count - 1, -1, -1) * self.rate
        cos, sin, zero = age.cos(), age.sin(), torch.zeros(count)
        rows = torch.stack([cos, sin, zero, -sin, cos, zero], dim=1)
        return rows.view(count, 2, 3)


class Stabilizer:
    def __init__(self, size=5):
        self.buffer, self.motion = FrameBuffer(size), MotionEstimator()

    def warp(self, frames, theta):
        grid = F.affine_grid(theta, frames.shape, align_corners=False)  # BORN
        return F.grid_sample(frames, grid, padding_mode="border", align_corners=False)  # COLLIDES

    def __call__(self, frame):
        self.buffer.push(frame)
        frames = self.buffer.window()
        aligned = self.warp(frames, self.motion.theta(len(frames)))
        return aligned.mean(0)


def scene(size, angle):
    y, x = torch.meshgrid(torch.linspace(-1, 1, size), torch.linspace(-1, 1, size), indexing="ij")
    c, s = math.cos(angle), math.sin(angle)
    u, v = c * x + s * y, c * y - s * x
    return torch.stack([torch.sin(6 * u), torch.cos(5 * v), u * v])


def psnr(a, b):
    return -10 * torch.log10((a.float() - b).square().mean()).item()


def main():
    stabilizer = Stabilizer()
    gen = torch.Generator().manual_seed(0)
    for i in range(8):
        clean = scene(32, angle=0.04 * i)
        noisy = clean + 0.1 * torch.randn(clean.shape, generator=gen)
        steady = stabilizer(noisy)
    print(f"psnr {psnr(steady, clean):.1f} dB, noisy {psnr(noisy, clean):.1f} dB")


main()
