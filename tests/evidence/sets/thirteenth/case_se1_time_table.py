"""
title: a diffusion transformer turned to double precision for a reference run
expect: collision
thread: https://github.com/soran-ghaderi/torchebm/pull/306
fix_at: 26, 27, 28, 31, 32, 82

Expectation, written first: the sinusoidal table of the time steps is made in float32 whatever the model's dtype is;
after model.double() the first linear layer of the time embedding meets it with float64 weights.
"""
import math

import torch
import torch.nn.functional as F
from torch import nn


class TimestepEmbedder(nn.Module):
    def __init__(self, hidden, frequency_embedding_size=32):
        super().__init__()
        self.size = frequency_embedding_size
        self.mlp = nn.Sequential(nn.Linear(self.size, hidden), nn.SiLU(), nn.Linear(hidden, hidden))

    @staticmethod
    def timestep_embedding(t, dim, max_period=10000):
        half = dim // 2
        freqs = torch.exp(-math.log(max_period) * torch.arange(half, dtype=torch.float32) / half)  # BORN
        args = t[:, None].float() * freqs[None]  # BORN
        return torch.cat([torch.cos(args), torch.sin(args)], dim=-1)

    def forward(self, t):
        t_freq = self.timestep_embedding(t, self.size)
        return self.mlp(t_freq)  # COLLIDES


def modulate(x, shift, scale):
    return x * (1 + scale[:, None]) + shift[:, None]


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm = nn.LayerNorm(dim, elementwise_affine=False)
        self.attn = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
        self.ada = nn.Linear(dim, 4 * dim)

    def forward(self, x, c):
        shift_a, scale_a, shift_m, scale_m = self.ada(F.silu(c)).chunk(4, -1)
        h = modulate(self.norm(x), shift_a, scale_a)
        x = x + self.attn(h, h, h, need_weights=False)[0]
        return x + self.mlp(modulate(self.norm(x), shift_m, scale_m))


class VelocityNet(nn.Module):
    def __init__(self, channels=4, dim=32, depth=2):
        super().__init__()
        self.inp, self.out = nn.Linear(channels, dim), nn.Linear(dim, channels)
        self.t_embedder = TimestepEmbedder(dim)
        self.blocks = nn.ModuleList(Block(dim, 4) for _ in range(depth))

    def forward(self, x, t):
        c, h = self.t_embedder(t * 1000), self.inp(x)
        for block in self.blocks:
            h = block(h, c)
        return self.out(h)


class FlowSampler:
    def __init__(self, model, steps):
        self.model, self.steps = model, steps

    @torch.no_grad()
    def sample(self, x):
        grid = torch.linspace(0, 1, self.steps + 1, dtype=x.dtype)
        for a, b in zip(grid[:-1], grid[1:]):
            k = self.model(x, a.expand(len(x)))
            x = x + (b - a) * self.model(x + 0.5 * (b - a) * k, ((a + b) / 2).expand(len(x)))
        return x


def reference(model, noise, steps=8):
    return FlowSampler(model.double(), steps).sample(noise.double())


def main():
    torch.manual_seed(0)
    model = VelocityNet().eval()
    noise = torch.randn(3, 6, 4)
    plain = FlowSampler(model, 8).sample(noise)
    error = (reference(model, noise) - plain).abs().max().item()
    print(f"error of the float32 sampler {error:.1e}")


main()
