"""
title: nanosecond time stamps are rebased to the start of the observation before they become float32
expect: clean
thread: https://github.com/CMBSciPol/furax/pull/145
measured: rate 200.000 Hz, spin 2.030 Hz, amplitude 0.9996
float64: rate 200.000 Hz, spin 2.030 Hz, amplitude 0.9996 (elapsed seconds, signal and fit in float64)

Expectation, written first: the stamps are int64 and the start is subtracted as integers; what is cast to float32 is
a few minutes in seconds, exact to some microseconds. Rate and frequency agree to all printed digits.
"""
import math
from dataclasses import dataclass

import torch

REAL = torch.float32


@dataclass
class Observation:
    stamps: torch.Tensor
    signal: torch.Tensor


class Reader:
    def __init__(self, start_ns=1_718_000_000_000_000_000, rate=200.0, seconds=60.0, seed=3):
        self.start_ns, self.rate, self.seconds = start_ns, rate, seconds
        self.gen = torch.Generator().manual_seed(seed)

    def read(self, spin_hz):
        n = int(self.rate * self.seconds)
        tick = round(1e9 / self.rate)
        stamps = self.start_ns + torch.arange(n, dtype=torch.int64) * tick
        t = torch.arange(n, dtype=torch.float64) / self.rate
        noise = torch.randn(n, generator=self.gen, dtype=torch.float64)
        return Observation(stamps, (torch.sin(2 * math.pi * spin_hz * t) + 0.2 * noise).to(REAL))


class Clock:
    def __init__(self, stamps):
        self.origin = stamps[0].item()
        self.elapsed = ((stamps - self.origin) // 1000).to(REAL) / 1e6

    def sample_rate(self):
        return (len(self.elapsed) - 1) / (self.elapsed[-1] - self.elapsed[0])


class Modulation:
    """least squares of a rotation at candidate frequencies"""

    def __init__(self, clock, signal):
        self.t, self.signal = clock.elapsed, signal

    def power(self, hz):
        phase = 2 * math.pi * hz[:, None] * self.t
        re, im = torch.cos(phase) @ self.signal, torch.sin(phase) @ self.signal
        return (re * re + im * im) / len(self.signal) ** 2

    def frequency(self, low, high, steps=81):
        for _ in range(2):
            grid = torch.linspace(low, high, steps, dtype=torch.float64).to(REAL)
            best = grid[self.power(grid).argmax()].item()
            low, high = best - (high - low) / 20, best + (high - low) / 20
        return best


def main():
    observation = Reader().read(spin_hz=2.03)
    clock = Clock(observation.stamps)
    hz = Modulation(clock, observation.signal).frequency(1.5, 2.5)
    amplitude = 2 * Modulation(clock, observation.signal).power(torch.tensor([2.03], dtype=REAL)).sqrt().item()
    print(f"rate {clock.sample_rate().item():.3f} Hz, spin {hz:.3f} Hz, amplitude {amplitude:.4f}")


main()
