"""
title: sinusoidal timestep features computed in float32 enter the bf16 time MLP of a DiT
expect: collision
thread: https://github.com/kohya-ss/sd-scripts/issues/2364
fix_at: 21, 33

Expectation, written first: the frequencies are asked for in float32, so the features
are float32, and nobody casts them back; the MLP is in bfloat16 with the rest of the
network. Birth: the float32 asked for at the frequencies.
"""
import math

import torch
from torch import nn


def timestep_features(t, dim, max_period=10000):
    half = dim // 2
    freqs = torch.exp(-math.log(max_period) * torch.arange(half, dtype=torch.float32) / half)  # BORN
    args = t[:, None].to(freqs.dtype) * freqs[None]
    return torch.cat([args.cos(), args.sin()], dim=-1)


class TimeMLP(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim
        self.fc1 = nn.Linear(dim, 2 * dim)
        self.fc2 = nn.Linear(2 * dim, dim)

    def forward(self, t):
        emb = timestep_features(t, self.dim)
        h = self.fc1(emb)  # COLLIDES
        return self.fc2(torch.nn.functional.silu(h))


class DiTBlock(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim, elementwise_affine=False)
        self.mod = nn.Linear(dim, 2 * dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x, c):
        shift, scale = self.mod(c).unsqueeze(1).chunk(2, -1)
        return x + self.mlp(self.norm(x) * (1 + scale) + shift)


class DiT(nn.Module):
    def __init__(self, dim=32, depth=2):
        super().__init__()
        self.time = TimeMLP(dim)
        self.blocks = nn.ModuleList(DiTBlock(dim) for _ in range(depth))

    def forward(self, x, t):
        c = self.time(t)
        for blk in self.blocks:
            x = blk(x, c)
        return x


torch.manual_seed(2)
net = DiT().to(torch.bfloat16)
latents = torch.randn(2, 16, 32)
noise = torch.randn_like(latents)
sigma = torch.sigmoid(torch.randn(2))
noisy = (1 - sigma)[:, None, None] * latents + sigma[:, None, None] * noise
pred = net(noisy.bfloat16(), sigma * 1000)
loss = nn.functional.mse_loss(pred.float(), noise - latents)
loss.backward()
print("loss", round(loss.item(), 4))
