"""
title: the phase of a neural source filter is rightly cumulated in float64, the sines never come back to float32
expect: collision
fix_at: 27, 28, 40

After https://github.com/chomeyama/SiFiGAN/pull/14 and https://github.com/RVC-Project/Retrieval-based-Voice-Conversion-WebUI/issues/1000.
Right: the sines are cast to the pitch track's dtype when the oscillator returns them.
"""
import math

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(110)


class Oscillator(nn.Module):
    def __init__(self, rate, harmonics):
        super().__init__()
        self.rate = rate
        self.register_buffer("order", torch.arange(1, harmonics + 1).float())

    def forward(self, f0):
        turns = torch.cumsum(f0.double() / self.rate, dim=1)  # BORN
        angle = 2 * math.pi * (turns[..., None] * self.order).frac()
        sines = torch.sin(angle) * (f0 > 0)[..., None]
        return 0.1 * sines


class Source(nn.Module):
    """Voiced excitation, its harmonics mixed by a learned layer."""

    def __init__(self, rate, harmonics=4):
        super().__init__()
        self.sines = Oscillator(rate, harmonics)
        self.mix = nn.Linear(harmonics, 1)

    def forward(self, f0):
        waves = self.sines(f0)
        return torch.tanh(self.mix(waves)).transpose(1, 2)  # COLLIDES


class Vocoder(nn.Module):
    def __init__(self, mels=8, hop=20, rate=8000):
        super().__init__()
        self.hop = hop
        self.source = Source(rate)
        self.up = nn.ConvTranspose1d(mels, 8, 2 * hop, stride=hop, padding=hop // 2)
        self.inject = nn.Conv1d(1, 8, 1)
        self.out = nn.Conv1d(8, 1, 7, padding=3)

    def forward(self, mel, f0):
        track = F.interpolate(f0[:, None], scale_factor=self.hop, mode="nearest")[:, 0]
        x = F.leaky_relu(self.up(mel), 0.1)
        return torch.tanh(self.out(x + self.inject(self.source(track))))


def frames(batch, length=10):
    f0 = 120 + 40 * torch.rand(batch, length)
    f0[:, ::4] = 0
    return torch.randn(batch, 8, length), f0


model = Vocoder()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(3):
    mel, f0 = frames(2)
    loss = F.l1_loss(model(mel, f0), torch.randn(2, 1, 200) * 0.1)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, round(loss.item(), 4))
