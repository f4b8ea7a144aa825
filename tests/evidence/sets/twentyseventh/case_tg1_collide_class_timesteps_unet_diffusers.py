"""
title: Class labels embedded as timesteps are float32 in a half UNet
expect: collision
thread: https://github.com/huggingface/diffusers/pull/3137
fix_at: (none beside the marked)

Expectation, written first: Timesteps has no weights and always returns float32. The UNet casts the time embedding
to its dtype after the projection but not the class labels with class_embed_type="timestep", so the half
linear layer of the class embedding refuses the float32 projection.
"""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


def get_timestep_embedding(timesteps, embedding_dim, max_period=10000):
    half_dim = embedding_dim // 2
    exponent = -math.log(max_period) * torch.arange(0, half_dim, dtype=torch.float32) / half_dim  # BORN
    emb = timesteps[:, None].float() * torch.exp(exponent)[None, :]  # BORN
    return torch.cat([torch.sin(emb), torch.cos(emb)], dim=-1)


class Timesteps(nn.Module):
    def __init__(self, num_channels):
        super().__init__()
        self.num_channels = num_channels

    def forward(self, timesteps):
        return get_timestep_embedding(timesteps, self.num_channels)


class TimestepEmbedding(nn.Module):
    def __init__(self, in_channels, time_embed_dim):
        super().__init__()
        self.linear_1 = nn.Linear(in_channels, time_embed_dim)
        self.linear_2 = nn.Linear(time_embed_dim, time_embed_dim)

    def forward(self, sample):
        return self.linear_2(F.silu(self.linear_1(sample)))  # COLLIDES


class UNet2DConditionModel(nn.Module):
    def __init__(self, channels=16, class_embed_type=None):
        super().__init__()
        time_embed_dim = channels * 4
        self.conv_in = nn.Conv2d(4, channels, 3, padding=1)
        self.time_proj = Timesteps(channels)
        self.time_embedding = TimestepEmbedding(channels, time_embed_dim)
        self.class_embed_type = class_embed_type
        if class_embed_type == "timestep":
            self.class_embedding = TimestepEmbedding(channels, time_embed_dim)
        self.time_emb_proj = nn.Linear(time_embed_dim, channels)
        self.conv_out = nn.Conv2d(channels, 4, 3, padding=1)

    @property
    def dtype(self):
        return self.conv_in.weight.dtype

    def forward(self, sample, timestep, class_labels=None):
        timesteps = timestep.expand(sample.shape[0])
        t_emb = self.time_proj(timesteps)
        t_emb = t_emb.to(dtype=self.dtype)
        emb = self.time_embedding(t_emb)
        if self.class_embed_type is not None:
            if self.class_embed_type == "timestep":
                class_labels = self.time_proj(class_labels)  # BORN
            class_emb = self.class_embedding(class_labels)  # BORN
            emb = emb + class_emb
        h = self.conv_in(sample) + self.time_emb_proj(F.silu(emb))[:, :, None, None]
        return self.conv_out(F.silu(h))


class StableUnCLIPPipeline:
    def __init__(self, unet):
        self.unet = unet

    @torch.no_grad()
    def __call__(self, noise_level, num_inference_steps=4, batch=2):
        latents = torch.randn(batch, 4, 8, 8).to(self.unet.dtype)
        class_labels = torch.full((batch,), noise_level)
        for t in torch.linspace(999, 0, num_inference_steps).long():
            noise_pred = self.unet(latents, t, class_labels=class_labels)
            latents = latents - 0.1 * noise_pred
        return latents


if __name__ == "__main__":
    torch.manual_seed(3137)
    plain = UNet2DConditionModel().eval().to(torch.float16)
    print("plain", round(StableUnCLIPPipeline(plain)(0).float().std().item(), 3))
    unclip = UNet2DConditionModel(class_embed_type="timestep").eval().to(torch.float16)
    print("unclip", round(StableUnCLIPPipeline(unclip)(350).float().std().item(), 3))
