"""
title: Sub-sampled timesteps come out as floats and are used to index the schedule
expect: collision
thread: https://github.com/VSehwag/minimal-diffusion/issues/4
fix_at: the index expression in the collision line

Expectation, written first: The sub-sampled timesteps are taken with np.linspace, which gives float64, and
torch.tensor keeps that. The network takes a float time without a word, but indexing alpha_bar with a
float tensor raises IndexError.
"""
from types import SimpleNamespace

import numpy as np
import torch
import torch.nn as nn


def unsqueeze3x(x):
    return x[..., None, None, None]


class TimeConditionedNet(nn.Module):
    def __init__(self, channels, dim=16):
        super().__init__()
        self.dim = dim
        self.time_mlp = nn.Linear(dim, channels)
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x, t):
        half = self.dim // 2
        freqs = torch.exp(-torch.arange(half) * (np.log(10000.0) / half)).float()
        args = t[:, None].float() * freqs[None]
        emb = torch.cat([torch.cos(args), torch.sin(args)], dim=-1)
        return self.conv(x) + self.time_mlp(emb)[:, :, None, None]


class GuassianDiffusion:
    def __init__(self, timesteps=1000):
        self.timesteps = timesteps
        betas = np.linspace(1e-4, 0.02, timesteps, dtype=np.float64)
        self.scalars = SimpleNamespace(
            beta=torch.from_numpy(betas).float(),
            alpha_bar=torch.from_numpy(np.cumprod(1 - betas)).float(),
        )
        self.clamp_x0 = lambda x: x.clamp(-1, 1)
        self.get_x0_from_xt_eps = lambda xt, eps, t, scalars: self.clamp_x0(
            (xt - unsqueeze3x((1 - scalars.alpha_bar[t]).sqrt()) * eps)  # COLLIDES
            / unsqueeze3x(scalars.alpha_bar[t].sqrt())
        )

    @torch.no_grad()
    def sample_from_reverse_process(self, model, xT, timesteps=None):
        model.eval()
        final = xT
        timesteps = timesteps or self.timesteps
        new_timesteps = np.linspace(0, self.timesteps - 1, num=timesteps, endpoint=True)  # BORN
        for t in new_timesteps[::-1]:
            current_t = torch.tensor([t] * len(final), device=final.device)  # BORN
            pred_eps = model(final, current_t)
            pred_x0 = self.get_x0_from_xt_eps(final, pred_eps, current_t, self.scalars)
            final = pred_x0 + 0.1 * pred_eps
        return final


def main():
    torch.manual_seed(0)
    diffusion = GuassianDiffusion(timesteps=1000)
    model = TimeConditionedNet(3)
    samples = diffusion.sample_from_reverse_process(model, torch.randn(2, 3, 8, 8), timesteps=10)
    print("samples", tuple(samples.shape), round(samples.mean().item(), 4))


if __name__ == "__main__":
    main()
