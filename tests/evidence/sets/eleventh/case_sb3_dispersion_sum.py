"""
title: a pairwise dispersion energy is summed in float32 with compensation
expect: clean
thread: https://github.com/MDIL-SNU/SevenNet/pull/300
measured: energy -19.7297 meV, in float64 -19.7297 meV, relative gap below 1e-6: True

Expectation, written first: each lane carries the lost low part along, so the float32 sum of many thousand small terms
agrees with float64 to all printed digits.
"""
import torch


class CompensatedSum:
    """Neumaier's sum, one lane per column"""

    def __init__(self, lanes, dtype=torch.float32):
        self.total = torch.zeros(lanes, dtype=dtype)
        self.low = torch.zeros(lanes, dtype=dtype)

    def add(self, x):
        t = self.total + x
        big = self.total.abs() >= x.abs()
        self.low += torch.where(big, (self.total - t) + x, (x - t) + self.total)
        self.total = t

    def value(self):
        return (self.total.double() + self.low.double()).sum()


class Dispersion:
    def __init__(self, c6=40.0, damping=3.0, dtype=torch.float32):
        self.c6, self.damping, self.dtype = c6, damping, dtype

    def terms(self, r2):
        r6 = r2 ** 3
        return -self.c6 / (r6 + self.damping ** 6)

    def energy(self, pos):
        pos = pos.to(self.dtype)
        n = len(pos)
        acc = CompensatedSum(n, self.dtype)
        for shift in range(1, n // 2 + 1):
            d = pos - pos.roll(shift, 0)
            e = self.terms((d * d).sum(1))
            acc.add(e if 2 * shift != n else e / 2)
        return acc.value().item()


def crystal(cells=9, spacing=4.1, seed=0):
    gen = torch.Generator().manual_seed(seed)
    axis = torch.arange(cells, dtype=torch.float64) * spacing
    grid = torch.stack(torch.meshgrid(axis, axis, axis, indexing="ij"), -1).view(-1, 3)
    return grid + 0.1 * torch.randn(grid.shape, generator=gen, dtype=torch.float64)


if __name__ == "__main__":
    pos = crystal()
    narrow = Dispersion().energy(pos)
    wide = Dispersion(dtype=torch.float64).energy(pos)
    print(f"energy {narrow:.4f} meV, in float64 {wide:.4f} meV, relative gap below 1e-6: {abs(narrow / wide - 1) < 1e-6}")
