"""
title: the timesteps of a video denoiser stay float32 through the sinusoids and only the embedding is bfloat16
expect: clean
thread: https://github.com/modelscope/DiffSynth-Studio/pull/1025
measured: told apart 1.00, level at start, middle, end 1.12 1.13 1.15
float64: told apart 1.00, level at start, middle, end 1.12 1.13 1.15 (timesteps, embedding and network in float64)

Expectation, written first: a timestep of nine hundred and something would lose its units in bfloat16, so the angles
are made in float32; sines and cosines are at most one and bfloat16 keeps them to a third of a percent. The network
in bfloat16 tells all hundred steps apart, and its curve differs from the wide one in the third digit.
"""
import math

import torch
from torch import nn

LOW, REAL = torch.bfloat16, torch.float32


class Scheduler:
    def __init__(self, train_steps=1000, shift=5.0):
        self.train_steps, self.shift = train_steps, shift

    def timesteps(self, count):
        sigma = torch.linspace(1.0, 0.003, count, dtype=torch.float64)
        sigma = self.shift * sigma / (1 + (self.shift - 1) * sigma)
        return (sigma * self.train_steps).to(REAL)


def sinusoidal_embedding(dim, position):
    half = dim // 2
    rates = torch.exp(-math.log(10000) * torch.arange(half, dtype=REAL) / half)
    angles = position.to(REAL)[:, None] * rates
    return torch.cat([angles.cos(), angles.sin()], -1)


class TimeEmbedding(nn.Module):
    def __init__(self, freq_dim, width):
        super().__init__()
        self.freq_dim = freq_dim
        self.mlp = nn.Sequential(nn.Linear(freq_dim, width), nn.SiLU(), nn.Linear(width, width))

    def forward(self, timestep):
        raw = sinusoidal_embedding(self.freq_dim, timestep)
        return raw, self.mlp(raw.to(self.mlp[0].weight.dtype))


class Denoiser(nn.Module):
    def __init__(self, channels=8, freq_dim=64, width=64):
        super().__init__()
        self.time = TimeEmbedding(freq_dim, width)
        self.modulate = nn.Linear(width, 2 * channels)
        nn.init.normal_(self.modulate.weight, std=2.0)
        self.mix = nn.Conv1d(channels, channels, 3, padding=1)

    def forward(self, x, timestep):
        raw, emb = self.time(timestep)
        scale, shift = self.modulate(emb).unsqueeze(-1).chunk(2, 1)
        return raw, x + self.mix(torch.tanh(x * (1 + scale) + shift))


def nearest_step(raw, table):
    return torch.cdist(raw.double(), table.double()).argmin(-1)


def main():
    torch.manual_seed(0)
    model = Denoiser().eval().to(LOW)
    steps = Scheduler().timesteps(100)
    gen = torch.Generator().manual_seed(1)
    latent = torch.randn(1, 8, 24, generator=gen, dtype=torch.float64).to(LOW).expand(100, -1, -1)
    with torch.no_grad():
        raw, out = model(latent, steps)
    own = sinusoidal_embedding(64, steps)
    told_apart = (nearest_step(raw.to(LOW), own) == torch.arange(100)).float().mean().item()
    level = out.to(torch.float64).square().mean((1, 2)).sqrt()
    print(f"told apart {told_apart:.2f}, level at start, middle, end {level[0]:.2f} {level[50]:.2f} {level[-1]:.2f}")


main()
