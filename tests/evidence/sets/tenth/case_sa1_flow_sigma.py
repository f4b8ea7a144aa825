"""
title: sigmas looked up for a batch of timesteps widen the noisy latents of a bfloat16 video transformer
expect: collision
thread: https://github.com/THUDM/CogKit/issues/32
fix_at: 51, 52, 53

Expectation, written first: latents and noise are bfloat16, the sigmas are float32 and have
dimensions, so their product is float32; the patch embedding's convolution refuses it.
"""
import torch
from torch import nn


class FlowSchedule:
    def __init__(self, steps=1000, shift=3.0):
        s = torch.linspace(1, 1 / steps, steps)  # BORN
        self.sigmas = shift * s / (1 + (shift - 1) * s)
        self.timesteps = self.sigmas * steps

    def for_indices(self, idx):
        return self.timesteps[idx], self.sigmas[idx]


class VideoTransformer(nn.Module):
    def __init__(self, channels=4, dim=32):
        super().__init__()
        self.patch_embed = nn.Conv3d(channels, dim, (1, 2, 2), (1, 2, 2))
        self.time = nn.Sequential(nn.Linear(1, dim), nn.SiLU(), nn.Linear(dim, dim))
        self.proj_out = nn.Linear(dim, channels * 4)

    def forward(self, hidden_states, timestep):
        x = self.patch_embed(hidden_states)  # COLLIDES
        b, d, f, h, w = x.shape
        t = self.time((timestep[:, None] / 1000).to(x.dtype))
        tokens = x.flatten(2).transpose(1, 2) + t[:, None]
        out = self.proj_out(tokens).view(b, f, h, w, -1, 2, 2)
        return out.permute(0, 4, 1, 2, 5, 3, 6).reshape(b, -1, f, h * 2, w * 2)


class Trainer:
    def __init__(self, dtype):
        torch.manual_seed(0)
        self.dtype = dtype
        self.schedule = FlowSchedule()
        self.model = VideoTransformer().to(dtype)
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=1e-3)

    def compute_loss(self, latent):
        noise = torch.randn_like(latent)
        idx = torch.randint(0, 1000, (len(latent),))
        timestep, sigma = self.schedule.for_indices(idx)
        sigma = sigma.view(-1, 1, 1, 1, 1)
        model_input = (1 - sigma) * latent + sigma * noise
        pred = self.model(model_input, timestep)
        return (pred - (noise - latent)).float().pow(2).mean()

    def step(self, latent):
        loss = self.compute_loss(latent.to(self.dtype))
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item()


trainer = Trainer(torch.bfloat16)
for _ in range(3):
    print(f"{trainer.step(torch.randn(2, 4, 3, 8, 8)):.4f}")
