"""
title: bin numbers of a histogram with 400 bins are uint8; the weights are half
expect: silent:overflow|wraparound|integer-overflow|downcast
thread: https://github.com/pytorch/pytorch/issues/25747
measured: threshold -678, voxels of the wrong material 45.05%
widened: threshold -353, voxels of the wrong material 0.00%

Expectation, written first: bins above 255 wrap to the dark end, the Otsu threshold between
two materials moves there. Weights in half are off by less than a thousandth each; float32
weights leave the threshold.
"""
import torch


class Histogram:
    def __init__(self, bins, lo, hi):
        self.bins, self.lo, self.hi = bins, lo, hi

    def index(self, values):
        share = ((values - self.lo) / (self.hi - self.lo)).clamp(0, 1 - 1e-6)
        return (share * self.bins).int().to(torch.uint8)  # BORN

    def __call__(self, values, weights):
        return torch.bincount(self.index(values), weights=weights.double(), minlength=self.bins)


def otsu(hist, lo, hi):
    p = hist / hist.sum()
    level = lo + (torch.arange(len(p)) + 0.5) * (hi - lo) / len(p)
    w, m = p.cumsum(0), (p * level).cumsum(0)
    between = (m[-1] * w - m) ** 2 / (w * (1 - w)).clamp(min=1e-12)
    return level[between[:-1].argmax()].item()


def scan(n, gen):
    air = -600 + 60 * torch.randn(n // 2, generator=gen)
    bone = 900 + 120 * torch.randn(n // 2, generator=gen)
    weights = 0.5 + torch.rand(n, generator=gen)
    return torch.cat([air, bone]), weights


def main():
    gen = torch.Generator().manual_seed(0)
    values, weights = scan(50_000, gen)
    stored = weights.to(torch.float16)
    hist = Histogram(400, -1000.0, 1500.0)
    threshold = otsu(hist(values, stored), hist.lo, hist.hi)
    truth = torch.arange(len(values)) >= len(values) // 2
    wrong = ((values > threshold) != truth).float().mean().item()
    print(f"threshold {threshold:.0f}, voxels of the wrong material {100 * wrong:.2f}%")


main()
