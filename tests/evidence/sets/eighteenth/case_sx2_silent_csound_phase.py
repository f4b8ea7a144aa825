"""
title: a long note of the terrain oscillator goes out of tune: its phase grows without wrapping in float32
expect: silent:precision-loss|lost-update
thread: https://github.com/csound/csound/pull/2867
measured: pitch at the start 440.00 Hz, after 400 s 432.70 Hz, -29.0 cents
widened: pitch at the start 440.00 Hz, after 400 s 439.99 Hz, -0.1 cents
innocent: pitch at the start 440.00 Hz, after 400 s 432.69 Hz, -29.0 cents
suspect: line 26 harmless (an increment good to seven digits)

Expectation, written first: the phase is kept in the float of the build and never wrapped; after minutes it is a million
radians, where float32 steps by a sixteenth, and adding the fixed increment of a block is rounded the same way each time,
so the frequency shifts. The increment itself, computed in float32, is right to 1e-7.
"""
import math

import torch

SAMPLE_RATE = 48000.0
MYFLT = torch.float32


class WTerrain2:
    def __init__(self, cps, ksmps=64):
        self.ksmps = ksmps
        self.phase = torch.zeros((), dtype=MYFLT)  # BORN
        self.increment = torch.tensor(2 * math.pi * cps / SAMPLE_RATE, dtype=MYFLT)
        self.ramp = torch.arange(ksmps)

    def skip(self, blocks):
        step = self.increment * self.ksmps
        for _ in range(blocks):
            self.phase += step  # BORN

    def perform(self):
        theta = self.phase + self.increment * self.ramp
        self.phase += self.increment * self.ksmps  # BORN
        x, y = torch.cos(theta), torch.sin(theta)
        return self.terrain(x, y).float()

    @staticmethod
    def terrain(x, y):
        return x + 0.1 * x * y


def frequency(signal):
    rising = torch.nonzero((signal[:-1] <= 0) & (signal[1:] > 0)).flatten().double()
    a, b = signal[rising.long()].double(), signal[rising.long() + 1].double()
    crossing = rising + a.abs() / (b - a)
    return ((len(crossing) - 1) / (crossing[-1] - crossing[0]) * SAMPLE_RATE).item()


def listen(osc, blocks):
    return frequency(torch.cat([osc.perform() for _ in range(blocks)]))


def main():
    torch.set_num_threads(1)
    osc = WTerrain2(cps=440.0)
    start = listen(osc, 200)
    osc.phase += osc.phase.new_tensor(2 * math.pi * 440.0 * 400)
    osc.skip(2000)
    late = listen(osc, 200)
    print(f"pitch at the start {start:.2f} Hz, after 400 s {late:.2f} Hz, {1200 * math.log2(late / start):+.1f} cents")


main()
