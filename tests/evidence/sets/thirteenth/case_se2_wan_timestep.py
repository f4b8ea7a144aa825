"""
title: a video sampler hands the timestep to the transformer in the dtype of the weights
expect: silent:precision-loss|downcast|round-trip
thread: https://github.com/modelscope/DiffSynth-Studio/issues/562
measured: steps conditioned as the one before: 32 of 99, timestep off by up to 1.94
widened: steps conditioned as the one before: 0 of 99, timestep off by up to 0.00

Expectation, written first: above 512 bfloat16 keeps every fourth number, so shifted timesteps that lie a fraction
apart become equal before the sinusoid. The innocent suspect is the transformer itself, which is in bfloat16 with
its time embedding: with a wide timestep its conditioning is different in every step, and widening it alone leaves
the repeated ones.
"""
import math

import torch
from torch import nn


class FlowMatchScheduler:
    def __init__(self, steps, shift=12.0, train_steps=1000):
        sigmas = torch.linspace(1.0, 0.003, steps + 1)[:-1]
        self.sigmas = shift * sigmas / (1 + (shift - 1) * sigmas)
        self.timesteps = self.sigmas * train_steps

    def step(self, velocity, i, sample):
        after = self.sigmas[i + 1] if i + 1 < len(self.sigmas) else torch.zeros(())
        return sample + velocity * (after - self.sigmas[i])


def sinusoidal_embedding_1d(dim, position):
    freq = torch.pow(10000, -torch.arange(dim // 2, dtype=torch.float64) / (dim // 2))
    angle = torch.outer(position.to(torch.float64), freq)
    return torch.cat([angle.cos(), angle.sin()], dim=1)


class DiT(nn.Module):
    def __init__(self, width=48, freq_dim=64):
        super().__init__()
        self.freq_dim = freq_dim
        self.time_embedding = nn.Sequential(nn.Linear(freq_dim, width), nn.SiLU(), nn.Linear(width, width))
        self.patch, self.head = nn.Linear(16, width), nn.Linear(width, 16)

    def condition(self, timestep):
        embedded = sinusoidal_embedding_1d(self.freq_dim, timestep)
        return self.time_embedding(embedded.to(self.patch.weight.dtype))

    def forward(self, x, timestep):
        t = self.condition(timestep)
        return self.head(torch.tanh(self.patch(x) + t)), t


class Pipeline:
    def __init__(self, torch_dtype):
        self.torch_dtype = torch_dtype
        self.dit = DiT().to(torch_dtype)

    @torch.no_grad()
    def __call__(self, steps):
        scheduler = FlowMatchScheduler(steps)
        latents = torch.randn(1, 8, 16)
        seen, fed = [], []
        for i, timestep in enumerate(scheduler.timesteps):
            timestep = timestep.unsqueeze(0).to(dtype=self.torch_dtype)  # BORN
            velocity, condition = self.dit(latents.to(self.dit.patch.weight.dtype), timestep)
            latents = scheduler.step(velocity.float(), i, latents)
            seen.append(condition.float())
            fed.append(timestep.double())
        off = (torch.cat(fed) - scheduler.timesteps.double()).abs().max().item()
        return torch.cat(seen), off


def main():
    torch.manual_seed(2)
    conditions, off = Pipeline(torch.bfloat16)(steps=100)
    repeated = (conditions.diff(dim=0).abs().amax(1) == 0).sum().item()
    print(f"steps conditioned as the one before: {repeated} of 99, timestep off by up to {off:.2f}")


main()
