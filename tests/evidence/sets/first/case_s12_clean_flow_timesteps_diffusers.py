"""
title: diffusers' flow-matching scheduler with a bfloat16 model: timesteps stay float32 up to the embedding, the sample is float32
expect: clean
needs: diffusers

Looks like sigma_schedule and mold#786; here only the embedding is cast, after sin and cos, and the scheduler upcasts (its own code does).
"""
import torch
from diffusers import FlowMatchEulerDiscreteScheduler
from diffusers.models.embeddings import TimestepEmbedding, Timesteps
from torch import nn


class Velocity(nn.Module):
    def __init__(self, channels=4, width=32):
        super().__init__()
        self.project = Timesteps(width, flip_sin_to_cos=True, downscale_freq_shift=0)
        self.time = TimestepEmbedding(width, width)
        self.first, self.last = nn.Conv2d(channels, width, 3, padding=1), nn.Conv2d(width, channels, 3, padding=1)
        self.norm = nn.GroupNorm(4, width)

    def forward(self, z, timestep):
        level = self.time(self.project(timestep).to(z.dtype))
        h = self.norm(self.first(z)) + level[:, :, None, None]
        return self.last(nn.functional.silu(h))


torch.manual_seed(0)
model = Velocity().to(torch.bfloat16).eval()
scheduler = FlowMatchEulerDiscreteScheduler(shift=3.0)
scheduler.set_timesteps(12)
z = torch.randn(2, 4, 8, 8)
with torch.no_grad():
    for timestep in scheduler.timesteps:
        velocity = model(z.to(torch.bfloat16), timestep.expand(len(z)))
        z = scheduler.step(velocity.float(), timestep, z).prev_sample
print(z.dtype, len(scheduler.timesteps.unique()), round(float(z.norm()), 3))
