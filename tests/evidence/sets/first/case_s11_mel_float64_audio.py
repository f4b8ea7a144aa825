"""
title: audio read as float64 goes through stft unharmed and meets the float32 mel basis
expect: collision
fix_at: 62

After pytorch/audio#286 (a float64 signal and a table made in the default dtype: expected scalar type Double but found Float). The wave
is float64, as soundfile reads it by default; stft promotes with the float32 window and says nothing, the mel matmul refuses.
Right change: make the wave float32 where it becomes a tensor.
"""
import numpy as np
import torch
from torch import nn


def read_wave(seconds=0.1, rate=8000):
    """soundfile.read() returns float64."""
    t = np.arange(int(seconds * rate)) / rate
    return 0.3 * np.sin(2 * np.pi * 440 * t), rate


class Clips(torch.utils.data.Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        wave, rate = read_wave()
        wave = wave / np.abs(wave).max()
        return torch.from_numpy(wave)  # BORN


class LogMel(nn.Module):
    def __init__(self, n_fft=64, hop=32, bands=10):
        super().__init__()
        self.n_fft, self.hop = n_fft, hop
        self.register_buffer("window", torch.hann_window(n_fft))
        centres = torch.linspace(0, n_fft // 2, bands)
        bins = torch.arange(n_fft // 2 + 1).float()
        self.register_buffer("basis", (1 - (bins - centres[:, None]).abs() / 4).clamp(min=0))

    def forward(self, wave):
        spectrum = torch.stft(wave, self.n_fft, self.hop, window=self.window, return_complex=True)
        power = spectrum.abs().square()
        return (self.basis @ power).clamp(min=1e-5).log()  # COLLIDES


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.mel = LogMel()
        self.net = nn.Sequential(nn.Conv1d(10, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(8, 2))

    def forward(self, wave):
        return self.net(self.mel(wave))


torch.manual_seed(0)
model = Classifier()
for waves in torch.utils.data.DataLoader(Clips(4), batch_size=2):
    waves = waves + 0.01 * torch.randn_like(waves)
    print(tuple(model(waves).shape))
