"""
title: Harmonic source of a vocoder accumulates its phase in half precision
expect: silent:precision-loss|downcast|round-trip
thread: https://github.com/hexgrad/kokoro/pull/353
measured: correlation of harmonic 4 with the reference in the third second = 0.0003
widened: correlation of harmonic 4 with the reference in the third second = 1.0000

Expectation, written first.  The neural-source-filter generator was cast to
half with the decoder.  It integrates the per-sample phase increment by a
cumulative sum; after two seconds the phase of the upper harmonics is some
thousands of radians, where a half has a step of 4 rad, so the sine is
scrambled.  BORN is the cast of f0 to half at the entry of the source module:
everything up to the phase follows it.  In float32 the harmonics agree with
the float64 reference.
"""
import math

import torch
from torch import nn

torch.manual_seed(0)
RATE = 16000


class SineGen(nn.Module):
    def __init__(self, harmonics=4, amplitude=0.1):
        super().__init__()
        self.harmonics, self.amplitude = harmonics, amplitude

    def forward(self, f0):
        multiples = torch.arange(1, self.harmonics + 1, dtype=f0.dtype)
        increments = f0[..., None] * multiples / RATE
        phase = 2 * math.pi * torch.cumsum(increments, 1)
        voiced = (f0 > 0)[..., None]
        return torch.sin(phase) * voiced * self.amplitude


class SourceModule(nn.Module):
    def __init__(self, harmonics=4, dtype=torch.half):
        super().__init__()
        self.dtype = dtype
        self.sine = SineGen(harmonics)
        self.merge = nn.Linear(harmonics, 1)

    def forward(self, f0):
        f0 = f0.to(torch.half)  # BORN
        sines = self.sine(f0)
        return torch.tanh(self.merge(sines.to(self.merge.weight.dtype))), sines


def pitch_contour(seconds=3.0):
    t = torch.arange(int(seconds * RATE)) / RATE
    f0 = 196.0 + 12.0 * torch.sin(2 * math.pi * 5.1 * t)
    f0[t < 0.1] = 0.0
    return f0[None]


def correlation(a, b):
    a, b = a - a.mean(), b - b.mean()
    return (a @ b / (a.norm() * b.norm())).item()


def main():
    f0 = pitch_contour()
    source = SourceModule().eval()
    with torch.no_grad():
        _, sines = source(f0)
    reference = SineGen()(f0.double())
    tail = slice(2 * RATE, 3 * RATE)
    scores = [correlation(sines[0, tail, h].double(), reference[0, tail, h]) for h in range(4)]
    print(f"correlation of harmonic 4 with the reference in the third second = {scores[3]:.4f}")


if __name__ == "__main__":
    main()
