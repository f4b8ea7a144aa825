"""
title: the kernel of a resampler is computed in float64 for its quality and cached so, waves are float32
expect: collision
fix_at: 27, 39

After https://github.com/pytorch/audio/pull/1514 and https://github.com/pytorch/audio/pull/1556 (the cached kernel no longer follows the wave's dtype).
Right: the cached kernel is cast to float32 once, after it was computed.
"""
import math

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(606)


def sinc_kernel(old, new, width=6, rolloff=0.95):
    """One phase per output sample, windowed by a raised cosine."""
    base = min(old, new) * rolloff
    reach = math.ceil(width * old / base)
    times = torch.arange(-reach, reach + old, dtype=torch.float64)[None] / old  # BORN
    phases = torch.arange(0, -new, -1)[:, None] / new
    t = ((times + phases) * base).clamp(-width, width)
    window = torch.cos(t * math.pi / width / 2) ** 2
    kernel = torch.sinc(t) * window * (base / old)
    return kernel[:, None], reach


class Resample(nn.Module):
    cache = {}

    def __init__(self, old, new):
        super().__init__()
        step = math.gcd(old, new)
        self.old, self.new = old // step, new // step
        if (self.old, self.new) not in self.cache:
            self.cache[self.old, self.new] = sinc_kernel(self.old, self.new)
        self.kernel, self.reach = self.cache[self.old, self.new]

    def forward(self, wave):
        if self.old == self.new:
            return wave
        padded = F.pad(wave[:, None], (self.reach, self.reach + self.old))
        out = F.conv1d(padded, self.kernel, stride=self.old)  # COLLIDES
        return out.transpose(1, 2).flatten(1)[:, :math.ceil(self.new * wave.shape[1] / self.old)]


class Tagger(nn.Module):
    def __init__(self, rate=8000, tags=3):
        super().__init__()
        self.rate = rate
        self.net = nn.Sequential(nn.Conv1d(1, 16, 32, stride=8), nn.ReLU(), nn.Conv1d(16, 16, 16, stride=4), nn.ReLU(), nn.AdaptiveAvgPool1d(1))
        self.out = nn.Linear(16, tags)

    def forward(self, wave, rate):
        wave = Resample(rate, self.rate)(wave)
        return self.out(self.net(wave[:, None])[..., 0])


tagger = Tagger()
for rate in (8000, 12000):
    t = torch.arange(rate // 4) / rate
    waves = torch.sin(2 * math.pi * torch.tensor([[220.0], [440.0]]) * t)
    print(rate, [round(v, 3) for v in tagger(waves, rate).softmax(-1)[0].tolist()])
