"""
title: the PSNR of an upscaler is taken from the difference of two uint8 pictures
expect: silent:overflow|integer-overflow|wraparound
thread: https://github.com/DevKiHyun/VDSR-Tensorflow/issues/1
measured: x2: mean PSNR 5.46 dB; x3: mean PSNR 5.60 dB
widened: x2: mean PSNR 48.96 dB; x3: mean PSNR 48.78 dB

Expectation, written first: wherever the upscaled pixel is darker than the original the unsigned difference wraps to
almost 256 and the mean square is that of noise. The innocent suspect is the upscaler's output, kept in float16
before it is rounded to pixels: its steps near 200 are an eighth, and a wide one gives the same numbers.
"""
import math

import torch
import torch.nn.functional as F


class Picture:
    """eight bit luminance, as read from disk"""

    def __init__(self, pixels):
        self.pixels = pixels.round().clamp(0, 255).to(torch.uint8)  # BORN

    def crop(self, border):
        return self.pixels[..., border:-border, border:-border]


class Upscaler:
    def __init__(self, scale):
        self.scale = scale

    def shrink(self, picture):
        return F.avg_pool2d(picture.pixels.float()[None, None], self.scale)

    def __call__(self, small):
        grown = F.interpolate(small, scale_factor=self.scale, mode="bicubic", align_corners=False)
        return Picture(grown[0, 0].half().float())


def rmse(a, b):
    difference = a - b  # BORN
    return difference.float().square().mean().sqrt().item()


def psnr(prediction, truth, border):
    error = rmse(prediction.crop(border), truth.crop(border))
    return 20 * math.log10(255 / error) if error else float("inf")


def scene(seed, size=192):
    gen = torch.Generator().manual_seed(seed)
    coarse = torch.rand(1, 1, 12, 12, generator=gen) * 255
    return Picture(F.interpolate(coarse, size=(size, size), mode="bicubic", align_corners=False)[0, 0])


def evaluate(scale, pictures):
    upscale = Upscaler(scale)
    return [psnr(upscale(upscale.shrink(p)), p, border=2 * scale) for p in pictures]


def main():
    pictures = [scene(s) for s in range(6)]
    for scale in (2, 3):
        scores = evaluate(scale, pictures)
        print(f"x{scale}: mean PSNR {sum(scores) / len(scores):.2f} dB", end="; " if scale == 2 else "\n")


main()
