"""
title: PSNR of a denoiser's output, measured on byte images
expect: silent:overflow|precision-loss|downcast
thread: https://github.com/Lightning-AI/torchmetrics/issues/2787
measured: psnr 29.28 dB
widened: psnr 23.62 dB
fix_at: 35

Expectation, written first: the metric subtracts two uint8 images and squares the
difference in uint8, so both wrap modulo 256 and the PSNR is far from the truth.
BORN is the line that turns what the metric compares into uint8; float32 there gives the
right figure. The images are otherwise fine.
"""
import math

import torch
from torch import nn


class BoxDenoiser(nn.Module):
    def __init__(self, width=3):
        super().__init__()
        self.pool = nn.AvgPool2d(width, stride=1, padding=width // 2, count_include_pad=False)

    def forward(self, x):
        return self.pool(x)


class PeakSignalNoise:
    def __init__(self, peak=255.0):
        self.peak = peak
        self.total, self.count = 0.0, 0

    def update(self, restored, clean):
        diff = restored - clean
        self.total += (diff * diff).sum().item()
        self.count += diff.numel()

    def compute(self):
        return 10 * math.log10(self.peak ** 2 * self.count / self.total)


class Evaluation:
    def __init__(self, model, metric):
        self.model, self.metric = model, metric

    @staticmethod
    def present(image):
        image = image.clamp(0, 255).round()
        return image.to(torch.uint8)  # BORN

    def run(self, scenes, gen):
        for clean in scenes:
            noisy = clean + 40 * torch.randn(clean.shape, generator=gen)
            restored = self.model(noisy[None, None])[0, 0]
            self.metric.update(self.present(restored), self.present(clean))
        return self.metric.compute()


def scenes(count, gen, size=48):
    yy, xx = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    for k in range(count):
        base = 90 + 60 * torch.sin(0.2 * (k + 1) * xx) * torch.cos(0.15 * yy)
        base[10:20, 10 + k:24 + k] = 220.0
        yield base


def main():
    gen = torch.Generator().manual_seed(0)
    psnr = Evaluation(BoxDenoiser(), PeakSignalNoise()).run(scenes(4, gen), gen)
    print("psnr %.2f dB" % psnr)


if __name__ == "__main__":
    main()
