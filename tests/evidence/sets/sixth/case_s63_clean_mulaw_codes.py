"""
title: speech is stored as eight-bit mu-law codes and expanded to float32 for the network
expect: clean

After https://github.com/mogrifier/wavsyn/issues/120 and https://github.com/claritychallenge/clarity/pull/312.
"""
import math

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(801)


def compress(wave, mu=255):
    """Values in [-1, 1] become codes 0..255, fine where the wave is quiet."""
    bent = wave.clamp(-1, 1).sign() * torch.log1p(mu * wave.clamp(-1, 1).abs()) / math.log1p(mu)
    return ((bent + 1) / 2 * mu + 0.5).floor().clamp(0, mu).to(torch.uint8)


def expand(code, mu=255):
    bent = code.float() / mu * 2 - 1
    return bent.sign() * (torch.exp(bent.abs() * math.log1p(mu)) - 1) / mu


class Words(nn.Module):
    def __init__(self, words=4):
        super().__init__()
        self.net = nn.Sequential(nn.Conv1d(1, 16, 32, stride=8), nn.ReLU(), nn.Conv1d(16, 16, 8, stride=4), nn.ReLU())
        self.out = nn.Linear(16, words)

    def forward(self, wave):
        return self.out(self.net(wave[:, None]).mean(-1))


def speech(count, length=800):
    word = torch.randint(0, 4, (count,))
    t = torch.arange(length) / 8000
    tone = torch.sin(2 * math.pi * (300 + 200 * word[:, None]) * t + 6 * torch.rand(count, 1))
    return 0.5 * tone * torch.exp(-3 * t) + 0.02 * torch.randn(count, length), word


model = Words()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for step in range(80):
    wave, word = speech(32)
    loss = F.cross_entropy(model(expand(compress(wave))), word)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
wave, word = speech(400)
with torch.no_grad():
    stored, direct = ((model(w).argmax(-1) == word).float().mean().item() for w in (expand(compress(wave)), wave))
print("accuracy", round(stored, 3), "of the waves themselves", round(direct, 3))
