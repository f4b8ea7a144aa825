"""
title: Oscillator bank with a 32-bit phase accumulator that wraps once per turn
expect: clean
thread: https://github.com/hexgrad/kokoro/pull/353

Expectation, written first.  Nothing is wrong.  The phase is an integer number
of 2^-32 turns; adding the increment wraps at a full turn, which is exactly the
wanted modulo, so the phase never drifts.  The harmonics multiply the phase by
their number, again modulo one turn.  Only the phase in turns is converted to a
half for the sine table of the decoder, where a relative error of 5e-4 is
inaudible.
"""
import math

import torch
from torch import nn

torch.manual_seed(0)
RATE = 16000
TURN = 1 << 32


class ExactSineGen(nn.Module):
    def __init__(self, harmonics=6):
        super().__init__()
        self.register_buffer("multiples", torch.arange(1, harmonics + 1, dtype=torch.int32))

    def increments(self, f0):
        return (f0.double() / RATE * TURN).round().to(torch.int64)

    def forward(self, f0):
        phase = torch.cumsum(self.increments(f0), 0).to(torch.int32)
        phases = phase[:, None] * self.multiples
        turns = phases.double() / TURN
        return torch.sin(2 * math.pi * turns.to(torch.float32)).to(torch.half)


def reference(f0, harmonics=6):
    increments = (f0.double() / RATE * TURN).round()
    turns = torch.remainder(torch.cumsum(increments, 0)[:, None] * torch.arange(1, harmonics + 1), TURN) / TURN
    return torch.sin(2 * math.pi * turns)


class Decoder(nn.Module):
    def __init__(self, harmonics=6):
        super().__init__()
        self.mix = nn.Linear(harmonics, 1, bias=False)

    def forward(self, sines):
        return self.mix(sines)


@torch.no_grad()
def main(seconds=4.0):
    t = torch.arange(int(seconds * RATE)) / RATE
    f0 = 220.0 + 15.0 * torch.sin(2 * math.pi * 4.3 * t)
    source, decoder = ExactSineGen(), Decoder().half()
    sines = source(f0)
    error = (sines.double() - reference(f0)).abs()
    audio = decoder(sines)
    print(f"largest error of a sine: first second {error[:RATE].max():.1e}, last second {error[-RATE:].max():.1e}, rms {audio.float().pow(2).mean().sqrt():.3f}")


if __name__ == "__main__":
    main()
