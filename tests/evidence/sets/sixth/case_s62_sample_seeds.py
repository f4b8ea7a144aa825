"""
title: seeds travel with the other settings of a batch in one float tensor, large neighbouring seeds are the same number
expect: silent:precision-loss|downcast|round-trip
needs: diffusers

After https://github.com/ShiftHackZ/Stable-Diffusion-KMP/issues/569, https://github.com/gchq/gaffer-tools/pull/609 and
https://github.com/arcanite24/img2tiles/issues/2.
Right: seeds are integers, in a tensor of their own (or the rows are float64).
"""
from dataclasses import dataclass

import torch
from diffusers import DDIMScheduler
from torch import nn

torch.manual_seed(718)


@dataclass
class Request:
    guidance: float
    steps: int
    seed: int


def collate(requests):
    """guidance, steps, seed: one row for each request."""
    return torch.Tensor([[r.guidance, r.steps, r.seed] for r in requests])  # BORN


class Noise(nn.Module):
    def __init__(self, channels=4, dim=16):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(channels, dim, 3, padding=1), nn.SiLU(), nn.Conv2d(dim, channels, 3, padding=1))

    def forward(self, x, t):
        return self.net(x) * (1 - t / 2000)


@torch.no_grad()
def generate(model, rows, side=8):
    scheduler = DDIMScheduler()
    scheduler.set_timesteps(int(rows[0, 1]))
    latents = torch.cat([torch.randn(1, 4, side, side, generator=torch.Generator().manual_seed(int(seed))) for seed in rows[:, 2]])
    guidance = rows[:, 0].float().view(-1, 1, 1, 1)
    for t in scheduler.timesteps:
        latents = scheduler.step(guidance * model(latents, t), t, latents).prev_sample
    return latents


def different(images):
    """Images that differ from all earlier ones."""
    flat = images.flatten(1)
    return sum(all((flat[i] - flat[j]).abs().max() > 1e-6 for j in range(i)) for i in range(len(flat)))


first = 1761436800
requests = [Request(0.2, 6, first + i) for i in range(24)]
images = generate(Noise(), collate(requests))
print("requests", len(requests), "different images", different(images), "spread between them", round(images.std(0).mean().item(), 3))
