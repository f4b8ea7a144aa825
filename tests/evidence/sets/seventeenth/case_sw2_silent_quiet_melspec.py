"""
title: quiet speech has a flat mel spectrogram at the floor: power is formed in float16
expect: silent:underflow|downcast
thread: https://github.com/adobe-research/convmelspec/pull/3
measured: loud: mean -29.31 dB, spread 5.21 dB, bins at the floor 0.0%; quiet: mean -87.62 dB, spread 15.68 dB, bins at the floor 60.4%
widened: loud: mean -29.31 dB, spread 5.21 dB, bins at the floor 0.0%; quiet: mean -72.82 dB, spread 5.20 dB, bins at the floor 0.0%
innocent: loud: mean -29.31 dB, spread 5.21 dB, bins at the floor 0.0%; quiet: mean -87.62 dB, spread 15.68 dB, bins at the floor 60.4%
suspect: 25 half mel filters: bounded (weights in 0..1)

Expectation, written first: Real and imaginary parts are half precision and are squared there; amplitudes under 2e-4 have powers under the
    smallest half number and become zero, so the log sits on the floor. The half precision mel filters look the same, but they are weights
    between 0 and 1.
"""
import math
import torch
from torch import nn


class ConvertibleSpectrogram(nn.Module):
    def __init__(self, n_fft=256, hop=128, n_mel=20, sr=8000, eps=1e-10, dtype=torch.float16):  # BORN
        super().__init__()
        self.n_fft, self.hop, self.eps, self.dtype = n_fft, hop, eps, dtype
        window = torch.hann_window(n_fft)
        self.register_buffer("window", window / window.sum())
        self.register_buffer("melscale", self.filterbank(n_fft // 2 + 1, n_mel, sr).to(torch.float16))
    @staticmethod
    def filterbank(bins, n_mel, sr):
        hz = torch.linspace(0, sr / 2, bins)
        mel = 2595 * torch.log10(1 + hz / 700)
        centers = torch.linspace(0, float(mel[-1]), n_mel + 2)[1:-1]
        width = centers[1] - centers[0]
        return (1 - (mel[:, None] - centers[None]).abs() / width).clamp(min=0)

    def power(self, audio):
        spec = torch.stft(audio, self.n_fft, self.hop, window=self.window, return_complex=True)
        real, imag = spec.real.to(self.dtype), spec.imag.to(self.dtype)  # BORN
        return real * real + imag * imag  # BORN

    def forward(self, audio):
        mel = self.power(audio).float().transpose(-1, -2) @ self.melscale.float()
        return 10 * torch.log10(mel + self.eps)


def utterance(seed, level, n=8000):
    g = torch.Generator().manual_seed(seed)
    t = torch.arange(n) / 8000
    f0 = 120 + 40 * torch.rand(1, generator=g)
    voice = sum(torch.sin(2 * math.pi * k * f0 * t) / k for k in range(1, 12))
    return level * (voice + 0.3 * torch.randn(n, generator=g))


spec = ConvertibleSpectrogram()
for name, level in (("loud", 0.3), ("quiet", 0.002)):
    db = torch.stack([spec(utterance(s, level)) for s in range(4)])
    floor = (db < -99.0).float().mean()
    print(f"{name}: mean {db.mean():.2f} dB, spread {db.std():.2f} dB, bins at the floor {100 * floor:.1f}%")
