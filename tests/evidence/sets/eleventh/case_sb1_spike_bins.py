"""
title: float64 spike times are counted in bins whose edges have the default dtype
expect: collision
thread: https://github.com/neuro-galaxy/torch_brain/issues/156
fix_at: 25, 29, 38, 41, 42, 43, 60

Expectation, written first: the times are float64 as recorded, the edges come from linspace without a dtype and are
float32; the histogram does not mix the two.
"""
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn


@dataclass
class Interval:
    start: float
    end: float


class SpikeData:
    def __init__(self, times, units, domain):
        self.times, self.units, self.domain = torch.from_numpy(times), torch.from_numpy(units), domain  # BORN

    def slice(self, start, end):
        keep = (self.times >= start) & (self.times < end)
        return self.times[keep] - start, self.units[keep]


class Binner:
    def __init__(self, bin_size=0.02):
        self.bin_size = bin_size

    def edges(self, length):
        bins = round(length / self.bin_size)
        return torch.linspace(0, bins * self.bin_size, bins + 1)  # BORN

    def __call__(self, data, start, end, units):
        times, ids = data.slice(start, end)
        edges = self.edges(end - start)
        rows = [torch.histogram(times[ids == u], edges)[0] for u in range(units)]  # COLLIDES
        return torch.stack(rows).float()


class Decoder(nn.Module):
    def __init__(self, units, hidden=12):
        super().__init__()
        self.conv = nn.Conv1d(units, hidden, 5, padding=2)
        self.out = nn.Linear(hidden, 2)

    def forward(self, counts):
        return self.out(self.conv(counts).relu().transpose(1, 2))


def session(seconds=5.0, units=6, rate=20.0, seed=0):
    rng = np.random.default_rng(seed)
    n = rng.poisson(seconds * rate * units)
    times = np.sort(rng.uniform(0, seconds, n))
    return SpikeData(times, rng.integers(0, units, n), Interval(0.0, seconds))


def main():
    torch.manual_seed(0)
    data, binner = session(), Binner()
    chunks = [binner(data, float(s), s + 1.0, units=6) for s in range(5)]
    velocity = Decoder(6)(torch.stack(chunks))
    print(velocity.shape, velocity.abs().mean().item())


main()
