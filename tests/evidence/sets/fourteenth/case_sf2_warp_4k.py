"""
title: video frames are warped with an absolute grid in half precision
expect: silent:precision-loss|downcast
thread: https://github.com/pytorch/pytorch/issues/94816
measured: mean PSNR of the warped rows 25.5 dB
widened: mean PSNR of the warped rows 44.3 dB

Expectation, written first: beyond column 2048 float16 has steps of two pixels, so the right half of a 4K row is warped
to neighbouring columns. The colours are float16 too, but lie between 0 and 1.
"""
import math

import torch


class Warp:
    def __init__(self, width):
        self.width = width

    def grid(self, flow):
        pixels = torch.arange(self.width, dtype=torch.float32)
        grid = (pixels + flow).to(torch.float16)  # BORN
        return grid

    def __call__(self, frame, flow):
        where = self.grid(flow).float().clamp(0, self.width - 1)
        left = where.floor().long().clamp(max=self.width - 2)
        part = where - left
        return frame[:, left] * (1 - part) + frame[:, left + 1] * part


class Clip:
    """rows of a 4K video in which a fine pattern moves by a tenth of a pixel a frame"""

    def __init__(self, width=3840, speed=0.1):
        self.x = torch.arange(width, dtype=torch.float64)
        self.speed = speed

    def row(self, k):
        phase = 2 * math.pi * (self.x - self.speed * k) / 12
        colours = torch.stack([phase.sin(), phase.cos(), (phase / 2).sin()])
        return 0.5 + 0.4 * colours

    def flow(self, k):
        return torch.full_like(self.x, -self.speed * k).float()


def psnr(a, b):
    return -10 * (a.double() - b).square().mean().log10().item()


def main():
    clip = Clip()
    warp = Warp(len(clip.x))
    frame = clip.row(0)
    first = frame.to(torch.float16)
    scores = []
    for k in range(1, 8):
        guess = warp(first.float(), clip.flow(k))
        scores.append(psnr(guess[:, 10:], clip.row(k)[:, 10:]))
    print(f"mean PSNR of the warped rows {sum(scores) / len(scores):.1f} dB")


main()
