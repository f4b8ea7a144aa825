"""
title: log-mel pictures of bird songs
expect: silent:overflow|downcast
thread: https://github.com/LIHANG-HONG/birdclef2023-2nd-place-solution/issues/2
measured: loudness 0.1: peak 18.1 dB, bad cells 0 / loudness 1.0: peak 38.1 dB, bad cells 0 / loudness 4.0: peak nan dB, bad cells 3576
widened: loudness 0.1: peak 18.1 dB, bad cells 0 / loudness 1.0: peak 38.1 dB, bad cells 0 / loudness 4.0: peak 50.2 dB, bad cells 0

Expectation, written first: the spectrum is cast to float16 before it is squared; loud
bins square to more than 65504 and the picture has inf in it. BORN is that cast; float32 gives
a finite picture. The half filterbank only rounds its weights a little.
"""
import math

import torch
from torch import nn


def filterbank(bins, bands):
    centres = torch.linspace(1, bins - 2, bands)
    grid = torch.arange(bins).float()
    width = bins / bands
    bank = (1 - (grid[None] - centres[:, None]).abs() / width).clamp(min=0)
    return bank / bank.sum(1, keepdim=True)


class LogMel(nn.Module):
    def __init__(self, n_fft=512, hop=128, bands=24):
        super().__init__()
        self.n_fft, self.hop = n_fft, hop
        self.register_buffer("window", torch.hann_window(n_fft))
        self.register_buffer("bank", filterbank(n_fft // 2 + 1, bands).to(torch.float16))

    def forward(self, wave):
        spec = torch.stft(wave, self.n_fft, self.hop, window=self.window, return_complex=True)
        magnitude = spec.abs().half()  # BORN
        power = magnitude * magnitude
        mel = self.bank.float() @ power.float()
        return 10 * torch.log10(mel + 1e-6)


class Recording:
    def __init__(self, loudness, rate=16000):
        self.loudness, self.rate = loudness, rate

    def read(self, seconds):
        t = torch.arange(int(seconds * self.rate)) / self.rate
        chirp = torch.sin(2 * math.pi * (2000 * t + 400 * torch.sin(6 * t)))
        return self.loudness * chirp * (t % 0.5 < 0.3)


def main():
    mel = LogMel()
    for loudness in (0.1, 1.0, 4.0):
        picture = mel(Recording(loudness).read(2.0))
        bad = int((~picture.isfinite()).sum())
        print("loudness %.1f: peak %.1f dB, bad cells %d" % (loudness, picture.max().item(), bad))


if __name__ == "__main__":
    main()
