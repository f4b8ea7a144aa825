"""
title: the magnitude of a loud recording is half before it is squared, the log-mel floor then hides the rest
expect: silent:overflow|precision-loss|downcast
fix_at: 40

After https://github.com/LIHANG-HONG/birdclef2023-2nd-place-solution/issues/2 and https://github.com/adobe-research/convmelspec/pull/3. The
squares of magnitudes over 256 are inf, nan_to_num makes a finite floor of it and every frame looks alike. The cast of the finished features is innocent.
Here the classifier ends at chance, 0.25 (repaired: 1.0). Right: square in float32.
"""
import math

import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(23)
RATE, PITCHES = 8000, (300.0, 700.0, 1300.0, 2100.0)


def recordings(n, gain=32768 / 16):
    t = torch.arange(RATE // 4) / RATE
    labels = torch.arange(n) % len(PITCHES)
    tone = torch.stack([torch.sin(2 * math.pi * PITCHES[k] * t) for k in labels.tolist()])
    return gain * (tone + 0.1 * torch.randn_like(tone)), labels


class LogMel(nn.Module):
    def __init__(self, n_fft=256, mels=24):
        super().__init__()
        self.n_fft = n_fft
        centres = torch.linspace(0, n_fft // 2, mels + 2)
        bins = torch.arange(n_fft // 2 + 1)
        rise = (bins - centres[:-2, None]) / (centres[1:-1] - centres[:-2])[:, None]
        fall = (centres[2:, None] - bins) / (centres[2:] - centres[1:-1])[:, None]
        self.register_buffer("filters", torch.minimum(rise, fall).clamp(min=0))

    def forward(self, wave):
        window = torch.hann_window(self.n_fft)
        magnitude = torch.stft(wave, self.n_fft, window=window, return_complex=True).abs().half()  # BORN
        power = magnitude.square()
        mel = self.filters @ power.float()
        log = mel.clamp(min=1e-10).log10()
        log = torch.maximum(log, log.amax((1, 2), keepdim=True) - 8.0)
        log = (log + 4.0) / 4.0
        return log.nan_to_num(posinf=0.0, neginf=0.0)


front = LogMel()
model = nn.Sequential(nn.LayerNorm(24), nn.Linear(24, 32), nn.ReLU(), nn.Linear(32, len(PITCHES)))
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
waves, labels = recordings(32)
for step in range(30):
    features = front(waves).to(torch.bfloat16)
    loss = F.cross_entropy(model(features.float().mean(-1)), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
waves, labels = recordings(40)
accuracy = (model(front(waves).mean(-1)).argmax(-1) == labels).float().mean().item()
print("loss", round(loss.item(), 3), "accuracy", round(accuracy, 3))
