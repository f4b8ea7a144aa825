"""
title: a tone made with numpy goes through a mel scale whose filter bank is float32
expect: collision
thread: https://github.com/pytorch/audio/issues/1753
fix_at: 18, 21, 22, 25, 35, 36, 47, 50, 58, 63, 64

Expectation, written first: numpy's sine is float64 and the plain spectrogram follows it without complaint;
the filter bank is a float32 buffer, and its product with the spectrogram is refused.
"""
import numpy as np
import torch
from torch import nn


class ToneSet:
    def __init__(self, rate=8000, seconds=0.25):
        self.rate = rate
        self.t = np.arange(int(rate * seconds)) / rate

    def tone(self, hz):
        wave = np.sin(2 * np.pi * hz * self.t)  # BORN
        return torch.from_numpy(wave)  # BORN

    def batch(self, frequencies):
        return torch.stack([self.tone(f) for f in frequencies])


class Spectrogram(nn.Module):
    def __init__(self, n_fft=128):
        super().__init__()
        self.n_fft = n_fft
        self.register_buffer("window", torch.hann_window(n_fft))

    def forward(self, wave):
        frames = wave.unfold(-1, self.n_fft, self.n_fft // 2) * self.window
        return torch.fft.rfft(frames).abs().square().transpose(-1, -2)


class MelScale(nn.Module):
    def __init__(self, bands, rate, bins):
        super().__init__()
        top = 2595 * np.log10(1 + rate / 2 / 700)
        centres = 700 * (10 ** (torch.linspace(0, float(top), bands + 2) / 2595) - 1)
        f = torch.linspace(0, rate / 2, bins)
        up = (f[:, None] - centres[:-2]) / (centres[1:-1] - centres[:-2])
        down = (centres[2:] - f[:, None]) / (centres[2:] - centres[1:-1])
        self.register_buffer("fb", torch.minimum(up, down).clamp(min=0))

    def forward(self, spec):
        return torch.matmul(spec.transpose(-1, -2), self.fb).transpose(-1, -2)  # COLLIDES


class ToneFeatures(nn.Sequential):
    def __init__(self, rate, n_fft=128, bands=20):
        super().__init__(Spectrogram(n_fft), MelScale(bands, rate, n_fft // 2 + 1))

    def forward(self, wave):
        return super().forward(wave).clamp(min=1e-10).log10()


if __name__ == "__main__":
    tones = ToneSet()
    features = ToneFeatures(tones.rate)
    mel = features(tones.batch([220, 440, 880, 1760]))
    print(mel.shape, mel.mean(-1).argmax(-1).tolist())
