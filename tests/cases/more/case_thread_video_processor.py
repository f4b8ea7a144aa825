"""
title: a video processor gives float32 frames to a bfloat16 causal VAE
expect: collision
fix_at: 26, 29, 37, 38

diffusers #12141 (WanVACE): frames come from numpy through the processor, and encode() of the VAE gets them as they are.
"""
import numpy as np
import torch
from torch import nn


class CausalVae(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv3d(3, 8, 3, padding=1), nn.SiLU(), nn.Conv3d(8, 4, 1))
        self.register_buffer("mean", torch.zeros(4))

    def encode(self, x):
        chunks = [x[:, :, i : i + 2] for i in range(0, x.shape[2], 2)]
        z = torch.cat([self.encoder(c) for c in chunks], 2)  # COLLIDES
        return z - self.mean.view(1, -1, 1, 1, 1)


def preprocess(frames):
    video = torch.from_numpy(np.stack(frames).astype(np.float32) / 255.0)  # BORN
    return (2 * video - 1).permute(3, 0, 1, 2)[None]


class Pipeline:
    def __init__(self, vae):
        self.vae = vae

    @torch.no_grad()
    def __call__(self, frames):
        video = preprocess(frames)
        mask = torch.ones_like(video[:, :1])
        return self.vae.encode(video * mask)


torch.manual_seed(0)
pipe = Pipeline(CausalVae().to(torch.bfloat16))
print(pipe([np.random.randint(0, 255, (8, 8, 3), dtype=np.uint8) for _ in range(4)]).shape)
