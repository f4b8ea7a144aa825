"""
title: a numpy noise schedule makes latents double; only the previewer minds
expect: collision
fix_at: 45, 46, 47

The denoiser casts what it is given and never complains. The sampler's own arithmetic with the schedule, picked per
picture and so not 0-d, widens the latents in the first step.
"""
import numpy as np
import torch
from torch import nn


def schedule(steps, low=0.1, high=8.0, bend=7):
    ramp = np.linspace(0, 1, steps)
    sigmas = (high ** (1 / bend) + ramp * (low ** (1 / bend) - high ** (1 / bend))) ** bend
    return torch.from_numpy(np.append(sigmas, 0.0))  # BORN


class Denoiser(nn.Module):
    def __init__(self, channels=4):
        super().__init__()
        self.inward, self.outward = nn.Conv2d(channels, 16, 3, padding=1), nn.Conv2d(16, channels, 3, padding=1)

    def forward(self, x, sigma):
        scaled = x / (1 + sigma.square()).sqrt()
        return self.outward(torch.tanh(self.inward(scaled.to(self.inward.weight.dtype))))


class Previewer:
    def __init__(self, every):
        self.every = every
        self.to_rgb = nn.Conv2d(4, 3, 1).half()
        self.shown = []

    def __call__(self, step, latents):
        if step % self.every == 0:
            picture = self.to_rgb(latents)  # COLLIDES
            self.shown.append(picture.clamp(0, 1).mul(255).byte())


@torch.inference_mode()
def sample(denoiser, latents, sigmas, callback):
    for step in range(len(sigmas) - 1):
        here, there = (sigmas[[step + i] * len(latents)].view(-1, 1, 1, 1) for i in (0, 1))
        slope = (latents - denoiser(latents, here)) / here
        latents = latents + slope * (there - here)
        callback(step, latents)
    return latents


torch.manual_seed(0)
start = torch.randn(2, 4, 8, 8).half() * 8
preview = Previewer(every=2)
print(sample(Denoiser().half(), start, schedule(6), preview).shape, len(preview.shown))
