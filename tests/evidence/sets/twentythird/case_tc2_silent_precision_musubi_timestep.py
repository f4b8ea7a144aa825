"""
title: the FramePack wrapper sends the timestep in bfloat16, most of the sampling steps share their time
expect: silent:precision-loss|downcast|round-trip
thread: https://github.com/kohya-ss/musubi-tuner/pull/729
measured: distinct timesteps 41 of 60 | first timesteps [1000.0, 1000.0, 1000.0, 996.0, 996.0, 996.0] | relative error of the sample 12%
widened: distinct timesteps 60 of 60 | first timesteps [1000.0, 999.2, 998.3, 997.4, 996.5, 995.5] | relative error of the sample 0%
innocent: distinct timesteps 41 of 60 | first timesteps [1000.0, 1000.0, 1000.0, 996.0, 996.0, 996.0] | relative error of the sample 12%
suspect: line 24, cosines of at most one, rounded once

Expectation, written first: sigma times 1000 is cast to the compute dtype, and bfloat16 has a spacing of 4 between 512 and 1024. The
sampler's steps near the beginning fall on the same few values, the sinusoidal embedding sees wrong times and the sample ends away from
the one with float32 timesteps. The sines and cosines cast to bfloat16 after they are computed cost next to nothing.
"""
import math

import torch
from torch import nn


def timestep_embedding(t, dim, dtype, max_period=10000):
    half = dim // 2
    freqs = torch.exp(-math.log(max_period) * torch.arange(half, dtype=torch.float32) / half)
    args = t[:, None].float() * freqs[None]
    return torch.cat([torch.cos(args), torch.sin(args)], dim=-1).to(dtype)


class PackedDiT(nn.Module):
    def __init__(self, channels=16, dim=64):
        super().__init__()
        self.dim = dim
        self.time_in = nn.Sequential(nn.Linear(dim, 128), nn.SiLU(), nn.Linear(128, channels))
        self.gain = nn.Parameter(torch.full((channels,), 0.4))

    def forward(self, x, timestep):
        emb = timestep_embedding(timestep, self.dim, x.dtype).to(self.time_in[0].weight.dtype)
        return x * self.gain + 6.0 * self.time_in(emb)


class KModelWrapper:
    def __init__(self, transformer, dtype, t_scale=1000.0):
        self.transformer = transformer
        self.dtype = dtype
        self.t_scale = t_scale
        self.seen = []

    def __call__(self, x, sigma):
        dtype = self.dtype
        timestep = (sigma * self.t_scale).to(dtype)  # BORN
        self.seen.append(float(timestep[0]))
        pred = self.transformer(x.to(dtype), timestep)
        return x - pred.float() * sigma.view(-1, 1)


def flux_time_shift(t, mu=3.0):
    return math.exp(mu) / (math.exp(mu) + (1 / t - 1))


def get_sigmas(steps):
    t = torch.linspace(1, 0, steps + 1)[:-1]
    return torch.cat([flux_time_shift(t), torch.zeros(1)])


@torch.no_grad()
def sample_euler(model, x, sigmas):
    for s, s_next in zip(sigmas[:-1], sigmas[1:]):
        denoised = model(x, s.expand(x.shape[0]))
        d = (x - denoised) / s
        x = x + d * (s_next - s)
    return x


torch.manual_seed(0)
net = PackedDiT()
nn.init.normal_(net.time_in[0].weight, std=0.6)
noise = torch.randn(4, 16)
sigmas = get_sigmas(60)
wrapper = KModelWrapper(net, torch.bfloat16)
out = sample_euler(wrapper, noise, sigmas)
ref = sample_euler(KModelWrapper(net.double(), torch.float64), noise.double(), sigmas.double()).float()
print("distinct timesteps", len(set(wrapper.seen)), "of", len(wrapper.seen))
print("first timesteps", [round(v, 1) for v in wrapper.seen[:6]])
print("relative error of the sample %.0f%%" % (100 * (out - ref).norm() / ref.norm()))
