"""
title: a denoiser trains under bfloat16 autocast, its output is clamped, dithered and written as 16-bit samples
expect: clean

After https://github.com/claritychallenge/clarity/pull/312 and https://github.com/devgianlu/go-librespot/pull/339.
"""
import math

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(810)


class Denoiser(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.net = nn.Sequential(nn.Conv1d(1, dim, 15, padding=7), nn.GELU(), nn.Conv1d(dim, dim, 15, padding=7), nn.GELU(), nn.Conv1d(dim, 1, 15, padding=7))

    def forward(self, wave):
        return self.net(wave[:, None])[:, 0]


def write(wave):
    dither = torch.rand_like(wave) - torch.rand_like(wave)
    return (wave * 32767 + dither).round().clamp(-32768, 32767).to(torch.int16)


def read(samples):
    return samples.float() / 32767


def notes(count, length=1024):
    t = torch.arange(length) / 8000
    pitch = 150 * 2 ** (2 * torch.rand(count, 1))
    clean = 0.9 * torch.sin(2 * math.pi * pitch * t + 6 * torch.rand(count, 1))
    return clean, clean + 0.3 * torch.randn(count, length)


def snr(clean, other):
    return (10 * torch.log10(clean.square().mean() / (clean - other).square().mean())).item()


model = Denoiser()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(40):
    clean, noisy = notes(8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = model(noisy)
    loss = F.mse_loss(out.float(), clean)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
clean, noisy = notes(16)
with torch.no_grad():
    out = model(noisy)
print("noisy", round(snr(clean, noisy), 1), "clean", round(snr(clean, out), 1), "from the file", round(snr(clean, read(write(out))), 1))
