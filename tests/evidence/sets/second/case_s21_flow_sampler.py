"""
title: a flow sampler's shifted sigmas come from numpy in float64 and reach the time embedding of a float32 model
expect: collision
fix_at: 61

After Extraltodeus/sigmas_tools_and_the_golden_scheduler#1 and sgl-project/sglang#29011: "expected m1 and m2 to have the same dtype,
but got: double != float". Right: hand the schedule out in float32, once, where it is turned into a tensor.
"""
import numpy as np
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(10)


class FlowSchedule:
    def __init__(self, steps, shift=3.0):
        sigmas = np.linspace(1.0, 0.0, steps + 1)
        sigmas = shift * sigmas / (1 + (shift - 1) * sigmas)
        self.sigmas = torch.from_numpy(sigmas)  # BORN

    def __len__(self):
        return len(self.sigmas) - 1

    def step(self, latents, velocity, index):
        return latents + (self.sigmas[index + 1] - self.sigmas[index]).item() * velocity


class TimeEmbedding(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.register_buffer("frequencies", torch.exp(-torch.arange(0, dim, 2) / dim * 6.0), persistent=False)
        self.mlp = nn.Sequential(nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, dim))

    def forward(self, t):
        angle = 1000 * t[:, None] * self.frequencies
        return self.mlp(torch.cat([angle.cos(), angle.sin()], dim=-1))  # COLLIDES


class Velocity(nn.Module):
    def __init__(self, channels=2, dim=16):
        super().__init__()
        self.time = TimeEmbedding(dim)
        self.inp = nn.Conv2d(channels, dim, 3, padding=1)
        self.out = nn.Conv2d(dim, channels, 3, padding=1)

    def forward(self, x, t):
        h = self.inp(x) + self.time(t)[:, :, None, None]
        return self.out(F.silu(h))


class Pipeline:
    def __init__(self, model, schedule):
        self.model, self.schedule = model, schedule

    @torch.no_grad()
    def __call__(self, batch, size, guidance=2.0):
        latents = torch.randn(batch, 2, size, size)
        for index in range(len(self.schedule)):
            t = self.schedule.sigmas[index].expand(batch)
            velocity = self.model(latents, t)
            free = self.model(latents.flip(-1), t).flip(-1)
            velocity = free + guidance * (velocity - free)
            latents = self.schedule.step(latents, velocity, index)
        return latents


pipeline = Pipeline(Velocity().eval(), FlowSchedule(steps=6))
image = pipeline(batch=2, size=8)
print(tuple(image.shape), image.dtype, bool(image.isfinite().all()))
