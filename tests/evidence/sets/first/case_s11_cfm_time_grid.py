"""
title: the sampler's time grid is float32, the time embedding follows it
expect: collision
fix_at: 26

After xiaomi-research/diffrhythm2#5 (cfm.py -> dit.py: t = self.time_embed(time), mat1 and mat2 must have the same dtype). The
embedding returns the dtype of the time it was given; training draws its times in the data's dtype, the sampler's linspace was
written without one. Right change: torch.linspace(..., dtype=) in sample().
"""
import math

import torch
from torch import nn


class TimeEmbedding(nn.Module):
    def __init__(self, width, freq=16):
        super().__init__()
        self.freq = freq
        self.mlp = nn.Sequential(nn.Linear(freq, width), nn.SiLU(), nn.Linear(width, width))

    def sinus(self, time):
        half = self.freq // 2
        freqs = torch.exp(-math.log(1000) * torch.arange(half) / half)
        angle = 1000 * time.float()[:, None] * freqs
        return torch.cat([angle.sin(), angle.cos()], -1).to(time.dtype)

    def forward(self, time):
        return self.mlp(self.sinus(time))  # COLLIDES


class DiT(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.time_embed = TimeEmbedding(width)
        self.inp, self.norm, self.out = nn.Linear(4, width), nn.LayerNorm(width), nn.Linear(width, 4)

    def forward(self, x, time):
        return self.out(self.norm(self.inp(x) + self.time_embed(time)[:, None]).tanh())


class CFM(nn.Module):
    def __init__(self, transformer):
        super().__init__()
        self.transformer = transformer

    def forward(self, target):
        noise, time = torch.randn_like(target), torch.rand(len(target), dtype=target.dtype)
        t = time[:, None, None]
        flow = self.transformer((1 - t) * noise + t * target, time)
        return (flow - (target - noise)).float().square().mean()

    @torch.no_grad()
    def sample(self, shape, dtype, steps=4):
        x = torch.randn(shape, dtype=dtype)
        times = torch.linspace(0, 1, steps + 1)  # BORN
        for now, then in zip(times[:-1], times[1:]):
            x = x + (then - now) * self.transformer(x, now.expand(shape[0]))
        return x


torch.manual_seed(0)
cfm = CFM(DiT()).to(torch.bfloat16)
cfm(torch.randn(3, 5, 4, dtype=torch.bfloat16)).backward()
print("trained a step")
print(cfm.sample((2, 5, 4), torch.bfloat16).dtype)
