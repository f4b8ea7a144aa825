"""
title: the harmonic source of a vocoder adds up its phase in the decoder's half precision
expect: silent:precision-loss|downcast|lost-update
thread: https://github.com/hexgrad/kokoro/pull/353
measured: energy on pitch after four seconds: first harmonic 22%, ninth 0%
widened: energy on pitch after four seconds: first harmonic 98%, ninth 98%

Expectation, written first: the phase of the ninth harmonic grows to thousands of turns within seconds, where float16
keeps whole turns only; the fraction that the sine needs is gone and the tone is lost. The voiced mask and the
amplitude of one eighth, in float16 as well, are exact.
"""
import math

import torch
from torch import nn


class SineGen(nn.Module):
    def __init__(self, rate, harmonics, dtype=torch.float16):  # BORN
        super().__init__()
        self.rate, self.harmonics, self.dtype = rate, harmonics, dtype
        self.amplitude = torch.tensor(0.125, dtype=torch.float16)

    def voiced(self, f0):
        return (f0 > 10).to(torch.float16)

    def forward(self, f0):
        order = torch.arange(1, self.harmonics + 1)
        turns = f0[:, None] * order / self.rate
        phase = turns.to(self.dtype).cumsum(0)  # BORN
        waves = torch.sin(2 * math.pi * (phase.float() % 1))
        return waves * (self.amplitude * self.voiced(f0)[:, None]).float()


class Source(nn.Module):
    """upsamples a pitch contour to samples and mixes the harmonics"""

    def __init__(self, rate=24000, hop=240, harmonics=9):
        super().__init__()
        self.hop = hop
        self.sine = SineGen(rate, harmonics)

    def forward(self, contour):
        return self.sine(contour.repeat_interleave(self.hop))


def contour(seconds, hop, rate):
    frames = int(seconds * rate / hop)
    f0 = torch.full((frames,), 200.0)
    f0[::50] = 0.0
    return f0


def purity(wave, hz, rate, window=8192):
    """share of the energy that lies within 12 Hz of the wanted tone"""
    frames = wave.unfold(0, window, window) * torch.hann_window(window)
    power = torch.fft.rfft(frames).abs().square().mean(0)
    freq = torch.arange(len(power)) * rate / window
    return (power[(freq - hz).abs() < 12].sum() / power.sum().clamp(min=1e-9)).item()


def main():
    source = Source()
    waves = source(contour(6.0, source.hop, 24000))
    tail = waves[-48000:]
    shares = [purity(tail[:, k], 200.0 * (k + 1), 24000) for k in (0, 8)]
    print(f"energy on pitch after four seconds: first harmonic {100 * shares[0]:.0f}%, ninth {100 * shares[1]:.0f}%")


main()
