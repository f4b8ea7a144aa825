"""
title: schedule timesteps are rounded through bf16 before the sinusoidal embedding, so neighbouring denoise steps get one embedding
expect: silent:precision-loss|downcast|round-trip
thread: https://github.com/utensils/mold/issues/786
measured: 120 steps, 101 distinct time modulations, 19 steps repeat the one before
widened: 120 steps, 120 distinct time modulations, 0 steps repeat the one before ; innocent: 120 steps, 101 distinct time modulations, 19 steps repeat the one before
suspect: 34 bounded (the finished embedding lies within one and is narrowed to bf16 last, which keeps neighbours apart)

Expectation, written first: the denoise loop casts the scalar timestep to the compute dtype, bf16, whose step between 512 and 1000 is
four; a fine schedule therefore hands several steps the same timestep and the blocks the same modulation. The cast of the finished
sinusoids to bf16 is harmless, since they are of order one.
"""
import math

import torch
import torch.nn as nn


def sinusoidal_embedding(timestep, dim, max_period=10000.0):
    half = dim // 2
    freqs = torch.exp(-math.log(max_period) * torch.arange(half, dtype=torch.float32) / half)
    args = timestep.float().unsqueeze(-1) * freqs
    return torch.cat([args.cos(), args.sin()], dim=-1)


class TimeTextEmbedding(nn.Module):
    def __init__(self, freq_dim, hidden):
        super().__init__()
        self.freq_dim = freq_dim
        self.proj = nn.Sequential(nn.Linear(freq_dim, hidden), nn.SiLU(), nn.Linear(hidden, hidden))

    def forward(self, timestep):
        emb = sinusoidal_embedding(timestep, self.freq_dim)
        emb = emb.to(torch.bfloat16)
        return self.proj(emb.float())


class WanScheduler:
    def __init__(self, shift=5.0, num_train_timesteps=1000):
        self.shift = shift
        self.num_train_timesteps = num_train_timesteps

    def set_timesteps(self, steps):
        sigmas = torch.linspace(1.0, 0.0, steps + 1)[:-1]
        sigmas = self.shift * sigmas / (1 + (self.shift - 1) * sigmas)
        self.timesteps = (sigmas * self.num_train_timesteps).long()
        return self.timesteps


class WanPipeline:
    def __init__(self, dtype):
        self.dtype = dtype
        self.scheduler = WanScheduler()
        self.time_embed = TimeTextEmbedding(64, 96)

    def scalar_timestep(self, timestep):
        return torch.tensor([float(timestep)]).to(self.dtype)  # BORN

    @torch.no_grad()
    def modulations(self, steps):
        rows = []
        for timestep in self.scheduler.set_timesteps(steps).tolist():
            rows.append(self.time_embed(self.scalar_timestep(timestep))[0])
        return torch.stack(rows)


def main():
    torch.manual_seed(0)
    pipe = WanPipeline(dtype=torch.bfloat16)
    steps = 120
    rows = pipe.modulations(steps)
    distinct = torch.unique(rows, dim=0).shape[0]
    stalls = int(((rows[1:] - rows[:-1]).abs().amax(-1) == 0).sum())
    print(f"{steps} steps, {distinct} distinct time modulations, {stalls} steps repeat the one before")


if __name__ == "__main__":
    main()
