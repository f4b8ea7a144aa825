"""
title: a sampler hands its timesteps to the model in bfloat16
expect: silent:precision-loss|downcast
modes: diagnose

After Flow-Factory#61, mold#786 and diffusers#11749: t.to(dtype) in bfloat16 before the sinusoidal embedding; 999 becomes 1000.
Damage: 15 of 20 timesteps are moved, their embeddings are off by up to 0.96; repaired: 0.
Right change: timesteps stay float32 (or int64); only the embedding is cast.
"""
import torch
import torch.nn as nn
from diffusers import DDIMScheduler
from diffusers.models.embeddings import Timesteps


class Denoiser(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.sinus = Timesteps(32, flip_sin_to_cos=True, downscale_freq_shift=0)
        self.time = nn.Sequential(nn.Linear(32, width), nn.SiLU(), nn.Linear(width, width))
        self.inp = nn.Conv2d(4, width, 3, padding=1)
        self.out = nn.Conv2d(width, 4, 3, padding=1)

    def forward(self, x, t):
        emb = self.sinus(t)  # BORN
        temb = self.time(emb.to(x.dtype))
        h = torch.nn.functional.silu(self.inp(x) + temb[:, :, None, None])
        return self.out(h), emb


class Sampler:
    def __init__(self, model, scheduler):
        self.model, self.scheduler = model, scheduler

    @torch.no_grad()
    def __call__(self, latents, steps):
        self.scheduler.set_timesteps(steps)
        dtype, moved, worst = latents.dtype, 0, 0.0
        for t in self.scheduler.timesteps:
            t_in = t.expand(len(latents)).to(dtype)  # BORN
            noise, emb = self.model(latents, t_in)
            want = self.model.sinus(t.expand(len(latents)))
            moved += int((emb != want).any())
            worst = max(worst, (emb - want).abs().max().item())
            latents = self.scheduler.step(noise, t, latents).prev_sample
        return latents, moved, worst


torch.manual_seed(0)
model = Denoiser().to(torch.bfloat16).eval()
sampler = Sampler(model, DDIMScheduler(num_train_timesteps=1000, timestep_spacing="trailing"))
latents, moved, worst = sampler(torch.randn(2, 4, 8, 8).to(torch.bfloat16), 20)
print("timesteps with another embedding", moved, "of 20, worst", round(worst, 3))
