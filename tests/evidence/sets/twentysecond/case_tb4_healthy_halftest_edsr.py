"""
title: a super-resolution network is tested in half precision without a drop in PSNR
expect: clean
thread: https://github.com/sanghyun-son/EDSR-PyTorch/issues/36
measured: images 6 PSNR 31.2
suspect: line 65 - innocent: outputs from 0 to 255 are rounded to whole levels afterwards, float16's steps are 0.125

Expectation, written first: the network and its input are cast to float16 for the test only. Pixel values up to 255
have steps of at most 0.125 there, less than the quantisation to 8 bits that follows. The PSNR is computed in float32
and agrees with the full-precision one to a tenth of a decibel; no value comes near 65504.
"""
import math

import torch
import torch.nn.functional as F
from torch import nn


def quantize(img, rgb_range=255):
    return img.mul(255 / rgb_range).clamp(0, 255).round().div(255 / rgb_range)


def calc_psnr(sr, hr, scale, rgb_range=255):
    diff = (sr - hr) / rgb_range
    valid = diff[..., scale + 6:-scale - 6, scale + 6:-scale - 6]
    return -10 * math.log10(valid.pow(2).mean().item())


class ResBlock(nn.Module):
    def __init__(self, feats):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(feats, feats, 3, padding=1), nn.ReLU(), nn.Conv2d(feats, feats, 3, padding=1)
        )

    def forward(self, x):
        return x + self.body(x) * 0.1


class EDSR(nn.Module):
    def __init__(self, feats=12, scale=2, n_blocks=2):
        super().__init__()
        self.scale = scale
        self.head = nn.Conv2d(3, feats, 3, padding=1)
        self.body = nn.Sequential(*(ResBlock(feats) for _ in range(n_blocks)))
        self.tail = nn.Sequential(nn.Conv2d(feats, 3 * scale ** 2, 3, padding=1), nn.PixelShuffle(scale))
        nn.init.normal_(self.tail[0].weight, std=1e-3)

    def forward(self, x):
        base = F.interpolate(x, scale_factor=self.scale, mode="nearest")
        return base + self.tail(self.body(self.head(x - 127.0)))


class Tester:
    def __init__(self, model, precision="half"):
        self.precision = precision
        self.model = model.eval()

    def prepare(self, tensor):
        return tensor.half() if self.precision == "half" else tensor

    @torch.no_grad()
    def test(self, pairs):
        if self.precision == "half":
            self.model.half()
        total = 0.0
        for lr, hr in pairs:
            sr = self.model(self.prepare(lr)).float()
            total += calc_psnr(quantize(sr), hr, self.model.scale)
        return total / len(pairs)


def image_pairs(n, gen):
    pairs = []
    for _ in range(n):
        coarse = torch.rand(1, 3, 8, 8, generator=gen) * 200 + 20
        hr = F.interpolate(coarse, size=(64, 64), mode="bicubic", align_corners=False).clamp(0, 255).round()
        pairs.append((F.avg_pool2d(hr, 2).round(), hr))
    return pairs


def main():
    torch.manual_seed(0)
    pairs = image_pairs(6, torch.Generator().manual_seed(3))
    model = EDSR()
    print(f"images {len(pairs)} PSNR {Tester(model).test(pairs):.1f}")


if __name__ == "__main__":
    main()
