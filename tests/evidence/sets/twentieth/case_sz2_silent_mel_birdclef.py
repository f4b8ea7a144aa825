"""
title: a mel front end run in float16 squares the spectrum past 65504 and loud bird calls become inf
expect: silent:overflow
thread: https://github.com/LIHANG-HONG/birdclef2023-2nd-place-solution/issues/2
measured: peak 10.86 dB, mean -18.81 dB ; peak 30.65 dB, mean -17.60 dB ; peak nan dB, mean nan dB
widened: peak 10.86 dB, mean -18.81 dB ; peak 30.65 dB, mean -17.60 dB ; peak 42.66 dB, mean -16.72 dB
innocent: peak 10.86 dB, mean -18.81 dB ; peak 30.65 dB, mean -17.60 dB ; peak nan dB, mean nan dB
suspect: 38 exact (the weights of the triangle are sixteenths)

Expectation, written first: the waveform is brought to float16 before the transform, so the real and imaginary parts of a loud frame, some
hundreds, are squared in float16 and overflow to inf; the decibel map then has inf in it and its mean is inf. The mel filters are float16 too,
which looks coarse, but their weights are multiples of a sixteenth and exact. (After the run: where a
filter is zero at such a bin, zero times inf, the map holds nan.)
"""
import math
import torch
from torch import nn


class ConvSTFT(nn.Module):
    def __init__(self, n_fft=256, hop=128):
        super().__init__()
        t = torch.arange(n_fft)
        f = torch.arange(n_fft // 2 + 1)[:, None]
        window = torch.hann_window(n_fft)
        angle = 2 * math.pi * f * t / n_fft
        self.hop = hop
        self.register_buffer("kernel_re", (torch.cos(angle) * window)[:, None])
        self.register_buffer("kernel_im", (-torch.sin(angle) * window)[:, None])

    def forward(self, wave):
        re = nn.functional.conv1d(wave[:, None], self.kernel_re.to(wave.dtype), stride=self.hop)
        im = nn.functional.conv1d(wave[:, None], self.kernel_im.to(wave.dtype), stride=self.hop)
        return re.pow(2) + im.pow(2)  # BORN


def triangle_filters(n_bins, n_mels):
    fb = torch.zeros(n_mels, n_bins, dtype=torch.float16)
    for m in range(n_mels):
        center = 4 + 7 * m
        for k in range(-3, 4):
            fb[m, center + k] = (4 - abs(k)) / 16
    return fb


class LogMel(nn.Module):
    def __init__(self, n_mels=16):
        super().__init__()
        self.stft = ConvSTFT()
        self.register_buffer("fb", triangle_filters(129, n_mels))

    def forward(self, wave):
        power = self.stft(wave)
        mel = self.fb.float() @ power.float()
        return 10 * torch.log10(mel.clamp(min=1e-6))


class BirdDataset(torch.utils.data.Dataset):
    def __init__(self, precision="16"):
        g = torch.Generator().manual_seed(1)
        t = torch.arange(8192) / 32000
        gains = [0.1, 1.0, 4.0]
        self.waves = [a * torch.sin(2 * math.pi * 3000 * t) + 0.01 * torch.randn(8192, generator=g) for a in gains]
        self.dtype = torch.float16 if precision == "16" else torch.float32  # BORN

    def __len__(self):
        return len(self.waves)

    def __getitem__(self, i):
        return self.waves[i].to(self.dtype)  # BORN


def main():
    front = LogMel()
    loader = torch.utils.data.DataLoader(BirdDataset(), batch_size=1)
    for wave in loader:
        db = front(wave)
        print(f"peak {db.max().item():.2f} dB, mean {db.mean().item():.2f} dB")


main()
