"""
title: timesteps are cast to bfloat16 before their angles are taken
expect: silent:downcast

bfloat16 cannot tell 999 from 1000, and an angle of a thousand radians is off by more than a turn.
"""
import torch
from torch import nn


class Timed(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.rate = torch.exp(-torch.arange(width // 2) / (width // 2) * 9.0)
        self.mix = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 4))

    def forward(self, x, timestep):
        timestep = timestep.to(x.dtype)  # BORN
        angle = timestep[:, None] * self.rate.to(x.dtype)
        return x + self.mix(torch.cat([angle.cos(), angle.sin()], dim=-1))


torch.manual_seed(0)
model = Timed(16).bfloat16()
x = torch.randn(8, 4, dtype=torch.bfloat16)
with torch.no_grad():
    for timestep in range(999, 0, -333):
        x = x - 0.1 * model(x, torch.full((8,), timestep))
print(x.isfinite().all().item())
