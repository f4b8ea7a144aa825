"""
title: a long tone whose phase is wrapped after every block
expect: clean
thread: https://github.com/nii-yamagishilab/project-NN-Pytorch-scripts/issues/2

Expectation, written first: the phase of a long tone in float32 would lose its
resolution if it grew, but it is kept between 0 and 1 from block to block, so the tone stays
clean for ten minutes. Float64 gives the same figures.
"""
import math

import torch


class Oscillator:
    def __init__(self, rate, dtype=torch.float32):
        self.rate, self.dtype = rate, dtype
        self.phase = torch.zeros((), dtype=dtype)

    def block(self, freq, size):
        step = torch.tensor(freq / self.rate, dtype=self.dtype)
        turns = self.phase + step * torch.arange(size, dtype=self.dtype)
        self.phase = (self.phase + step * size) % 1.0
        return torch.sin(2 * math.pi * (turns % 1.0))


class Spectrum:
    def __init__(self, size):
        self.size = size
        self.window = torch.hann_window(size, dtype=torch.float64)

    def noise_floor(self, wave):
        power = torch.fft.rfft(wave.double() * self.window).abs().square()
        top = int(power.argmax())
        rest = power.clone()
        rest[max(0, top - 4):top + 5] = 0.0
        return 10 * math.log10((rest.sum() / power.sum()).item() + 1e-30), top


def main():
    osc, spectrum = Oscillator(16000), Spectrum(1600)
    last = None
    for _ in range(6000):
        last = osc.block(250.0, 1600)
    floor, top = spectrum.noise_floor(last)
    print("tone in bin %d, clean %s, peak %.3f" % (top, floor < -90, last.abs().max().item()))


if __name__ == "__main__":
    main()
