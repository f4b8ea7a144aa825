"""
title: a flow-matching schedule is made in the model's bfloat16; neighbours coincide and steps find the wrong index
expect: silent:precision-loss|downcast
modes: diagnose

Comfy-Org/ComfyUI#16001. linspace(dtype=dtype) and a shift squeeze the sigmas near 1, where bfloat16 has steps of 1/256; argmin finds
the first of equal timesteps.
Measured: 50 distinct timesteps of 60, and the path from noise to image covers 0.9375 instead of 1.
BORN is the linspace. Change: dtype=torch.float32 there.
"""
import torch
from torch import nn


class FlowSchedule:
    def __init__(self, shift=7.0, train_steps=1000):
        self.shift, self.train_steps = shift, train_steps

    def set_timesteps(self, count, dtype):
        line = torch.linspace(1.0, 0.0, count + 1, dtype=dtype)  # BORN
        self.sigmas = self.shift * line / (1 + (self.shift - 1) * line)
        self.timesteps = self.sigmas[:-1] * self.train_steps

    def step(self, velocity, timestep, sample):
        index = int((self.timesteps - timestep).abs().argmin())
        return sample + velocity.float() * (self.sigmas[index + 1] - self.sigmas[index])


class Planner(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(width + 1, 32), nn.SiLU(), nn.Linear(32, width))

    def forward(self, z, timestep):
        level = (timestep / 1000).to(z.dtype).expand(len(z), 1)
        return self.net(torch.cat([z, level], -1))


def sample(model, z, steps=60):
    schedule = FlowSchedule()
    dtype = next(model.parameters()).dtype
    schedule.set_timesteps(steps, dtype)
    travelled = 0.0
    for timestep in schedule.timesteps:
        index = int((schedule.timesteps - timestep).abs().argmin())
        travelled += float(schedule.sigmas[index] - schedule.sigmas[index + 1])
        z = schedule.step(model(z.to(dtype), timestep), timestep, z)
    return z, schedule, travelled


torch.manual_seed(0)
model = Planner().bfloat16().eval()
with torch.no_grad():
    z, schedule, travelled = sample(model, torch.randn(4, 16))
print("distinct timesteps:", schedule.timesteps.unique().numel(), "of", schedule.timesteps.numel(), "travelled", round(travelled, 4))
