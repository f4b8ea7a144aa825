"""
title: trainer replays a rollout at other timesteps than the engine used: sigma is cast to BF16 before it is scaled by 1000
expect: silent:precision-loss|downcast
thread: https://github.com/Tencent-Hunyuan/UniRL/pull/438
measured: ratio of the first update: mean 0.9498 min 0.0004 max 22.2453, clipped 75.3%
widened: ratio of the first update: mean 1.0000 min 1.0000 max 1.0000, clipped 0.0%
innocent: ratio of the first update: mean 0.9497 min 0.0004 max 22.0778, clipped 75.0%
suspect: 33 bf16 embedding: bounded (cos and sin in [-1, 1]; on both sides alike)

Expectation, written first: The replay step casts sigma in [0, 1] to the transformer dtype and multiplies by 1000 afterwards, so the
    timestep is off by up to two units and the sinusoidal embedding sees other phases; the log ratio to the rollout is not zero. The bf16
    cast of the finished embedding is harmless (and the engine has it too).
"""
import math
import torch
from torch import nn

TIMESTEP_SCALE = 1000


def sinusoidal(t, dim):
    freqs = torch.exp(-math.log(10000) * torch.arange(dim // 2) / (dim // 2))
    args = t.float()[:, None] * freqs[None]
    return torch.cat([args.cos(), args.sin()], dim=-1)


class TimestepEmbedder(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.dim, self.mlp = dim, nn.Sequential(nn.Linear(dim, 64), nn.SiLU(), nn.Linear(64, 16))

    def forward(self, timestep):
        emb = sinusoidal(timestep, self.dim).to(torch.bfloat16)
        return self.mlp(emb.float())


class DiT(nn.Module):
    def __init__(self):
        super().__init__()
        self.t_embed, self.out = TimestepEmbedder(), nn.Linear(16, 16)

    def forward(self, latents, timestep):
        return self.out(latents + self.t_embed(timestep))


class FlowMatchPair:
    def __init__(self, steps=10, shift=5.0):
        s = torch.linspace(1, 1 / steps, steps)
        self.sigmas = shift * s / (1 + (shift - 1) * s)
        self.timesteps = self.sigmas * TIMESTEP_SCALE


class DiffusionStep:
    def __init__(self, model, dtype=torch.bfloat16):  # BORN
        self.model, self.dtype = model, dtype

    def predict_noise(self, latents, sigma):
        timestep = sigma.to(dtype=self.dtype) * TIMESTEP_SCALE  # BORN
        return self.model(latents, timestep)


torch.manual_seed(0)
dit, pair = DiT(), FlowMatchPair()
replay, std = DiffusionStep(dit), 0.05
log_ratio = []
with torch.no_grad():
    for sigma, t in zip(pair.sigmas, pair.timesteps):
        latents = torch.randn(32, 16)
        mean_rollout = dit(latents, t[None])
        action = mean_rollout + std * torch.randn_like(mean_rollout)
        logp = lambda mean: -((action - mean) ** 2).sum(-1) / (2 * std**2)
        log_ratio.append(logp(replay.predict_noise(latents, sigma[None])) - logp(mean_rollout))
ratio = torch.stack(log_ratio).exp()
clipped = ((ratio < 0.8) | (ratio > 1.2)).float().mean()
print(f"ratio of the first update: mean {ratio.mean():.4f} min {ratio.min():.4f} max {ratio.max():.4f}, clipped {100 * clipped:.1f}%")
