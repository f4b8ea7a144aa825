"""
title: a noise schedule is multiplied up in half
expect: silent:downcast

The first factors are 0.9999, which float16 rounds to 1.
"""
import torch
from torch import nn


class Schedule:
    def __init__(self, steps, dtype):
        rise = torch.linspace(1e-4, 0.02, steps, dtype=dtype)  # BORN
        self.kept = (1 - rise).cumprod(dim=0)

    def add_noise(self, x, noise, timestep):
        kept = self.kept[timestep][:, None]
        return kept.sqrt() * x + (1 - kept).sqrt() * noise


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.SiLU(), nn.Linear(32, 8)).half()
schedule = Schedule(1000, torch.float16)
with torch.no_grad():
    x, noise = torch.randn(2, 4, 8).half()
    out = model(schedule.add_noise(x, noise, torch.tensor([3, 200, 600, 999])))
print(out.dtype)