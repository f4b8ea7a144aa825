"""
title: a spectrogram cast to float32 before its magnitude
expect: silent:downcast|precision-loss
modes: diagnose

After fgnt/padertorch#104 and complex-STFT migrations: .float() on a complex spectrogram drops the imaginary part.
Damage: magnitudes are |Re| only: mean 38 % too low, a steady tone flickers (spread 0.58 instead of 0). Right change: spec.abs() first.
"""
import math
import warnings

import torch
import torch.nn as nn

warnings.filterwarnings("ignore")
N_FFT, HOP = 64, 16


def log_mag(wave):
    spec = torch.stft(wave, N_FFT, HOP, window=torch.hann_window(N_FFT), return_complex=True)
    mag = spec.to(torch.float32).abs()  # BORN
    return mag


class Tones(torch.utils.data.Dataset):
    def __init__(self, n):
        t = torch.arange(1024) / 1024
        self.freq = torch.linspace(60, 200, n)
        self.wave = torch.sin(2 * math.pi * self.freq[:, None] * t)

    def __len__(self):
        return len(self.wave)

    def __getitem__(self, i):
        return self.wave[i], self.freq[i] / 200


class Pitch(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(N_FFT // 2 + 1, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, wave):
        return self.net(torch.log1p(log_mag(wave)).mean(-1)).squeeze(-1)


torch.manual_seed(0)
net = Pitch()
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
for epoch in range(3):
    for wave, f in torch.utils.data.DataLoader(Tones(16), batch_size=8):
        loss = (net(wave) - f).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
peak = log_mag(Tones(16).wave)[:, :, 4:-4].amax(1)
print("loss", round(loss.item(), 4), "peak of a steady tone: mean", round(peak.mean().item(), 3), "spread",
      round((peak.std(-1) / peak.mean(-1)).mean().item(), 3))
