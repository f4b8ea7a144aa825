"""
title: the phase of a note is a float32 running sum cut to integers
expect: clean
thread: https://github.com/ttm/music/issues/102
measured: 220 to 220 Hz rms 0.702 end against the exact note 1.00 / 311 to 318 Hz rms 0.706 end against the exact note 1.00 / 440 to 880 Hz rms 0.705 end against the exact note 1.00
suspect: 36 negligible (a few seconds of notes: the index stays below 2**24 and the table is read to the nearest entry anyway)

Expectation, written first: the wavetable index is cumsum(f * length / rate), cut to an integer to look the table up. For the
short notes rendered here the total is below 2**24 and wrong by less than an entry of 1024; the drift that the thread
measures needs minutes. Against the exact note the correlation prints as 1.00.
"""
import math

import torch


class WaveTable:
    def __init__(self, length=1024):
        self.length = length
        self.table = torch.sin(2 * math.pi * torch.arange(length, dtype=torch.float64) / length)

    def lookup(self, gamma):
        return self.table[gamma % self.length]


class Being:
    def __init__(self, sample_rate=44100, table=None):
        self.sample_rate = sample_rate
        self.table = table or WaveTable()

    def glissando(self, f_start, f_end, duration):
        n = int(duration * self.sample_rate)
        return torch.linspace(f_start, f_end, n, dtype=torch.float64)

    def integrate(self, f0):
        f0 = f0.to(torch.float32)
        gamma = torch.cumsum(f0 * self.table.length / self.sample_rate, dim=0)
        return gamma.to(torch.int64)

    def envelope(self, n, attack=0.02):
        ramp = torch.arange(n, dtype=torch.float64) / (attack * self.sample_rate)
        return ramp.clamp(max=1.0)

    def render(self, f0):
        return self.table.lookup(self.integrate(f0)) * self.envelope(len(f0))


def exact_note(f_start, f_end, duration, sample_rate):
    n = int(duration * sample_rate)
    i = torch.arange(1, n + 1, dtype=torch.float64)
    slope = (f_end - f_start) / (n - 1)
    cycles = (f_start * i + slope * i * (i - 1) / 2) / sample_rate
    return torch.sin(2 * math.pi * cycles)


def correlation(a, b):
    return torch.corrcoef(torch.stack([a, b]))[0, 1].item()


def main():
    being = Being()
    for f_start, f_end, duration in [(220.0, 220.0, 1.0), (311.1, 317.7, 3.0), (440.0, 880.0, 2.0)]:
        note = being.render(being.glissando(f_start, f_end, duration))
        exact = exact_note(f_start, f_end, duration, being.sample_rate)
        tail = int(0.25 * being.sample_rate)
        print(f"{f_start:.0f} to {f_end:.0f} Hz rms {note.square().mean().sqrt():.3f} "
              f"end against the exact note {correlation(note[-tail:], exact[-tail:]):.2f}")


if __name__ == "__main__":
    main()
