"""
title: a bfloat16 denoiser whose time embedding is computed in float32 and cast when it is ready
expect: clean

The schedule stays float32 and is cast with the noise level it gives, and the loss is float32.
"""
import math

import torch
from torch import nn


def embed(timestep, width):
    rate = torch.exp(-math.log(10000) * torch.arange(width // 2, dtype=torch.float32) / (width // 2))
    angle = timestep[:, None].float() * rate
    return torch.cat([angle.sin(), angle.cos()], dim=-1)


class Denoiser(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(width, width), nn.SiLU())
        self.first, self.last = nn.Conv2d(4, width, 3, padding=1), nn.Conv2d(width, 4, 3, padding=1)

    def forward(self, x, timestep):
        time = self.time(embed(timestep, self.first.out_channels).to(x.dtype))
        return self.last(nn.functional.silu(self.first(x) + time[:, :, None, None]))


torch.manual_seed(0)
model = Denoiser(16).to(torch.bfloat16)
kept = (1 - torch.linspace(1e-4, 0.02, 1000)).cumprod(dim=0)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
for _ in range(3):
    clean, noise = torch.randn(2, 4, 4, 8, 8)
    timestep = torch.randint(0, 1000, (4,))
    level = kept[timestep].view(-1, 1, 1, 1)
    noisy = (level.sqrt() * clean + (1 - level).sqrt() * noise).to(torch.bfloat16)
    loss = ((model(noisy, timestep).float() - noise) * (1 - level)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.dtype)