"""
title: latents cached in bfloat16; training is inside autocast, validation is not
expect: collision
fix_at: 33, 50, 51, 63, 64

After ostris/kohya trainers' latent caches and FIELD.md's "validation run outside training's autocast".
Right change: validate under the same autocast, or cast the cached latents to float32.
"""
import contextlib

import torch
import torch.nn as nn


class Vae(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Conv2d(3, 4, 4, stride=4)

    def encode(self, x):
        return self.enc(x) * 0.18


class LatentCache:
    def __init__(self, vae, images):
        self.items = []
        with torch.no_grad():
            for image in images:
                z = vae.encode(image.unsqueeze(0))[0]
                self.items.append(z.to(torch.bfloat16))  # BORN

    def batch(self, index):
        return torch.stack([self.items[i] for i in index])


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Conv2d(4, 16, 3, padding=1)
        self.out = nn.Conv2d(16, 4, 3, padding=1)

    def forward(self, z, t):
        h = self.inp(z)  # COLLIDES
        return self.out(torch.relu(h + t.view(-1, 1, 1, 1)))


def diffusion_loss(net, z):
    t = torch.rand(len(z))
    noise = torch.randn(z.shape, dtype=z.dtype)
    zt = (1 - t.to(z.dtype)).view(-1, 1, 1, 1) * z + t.to(z.dtype).view(-1, 1, 1, 1) * noise
    return (net(zt, t).float() - (noise - z).float()).square().mean()


def run(cache, steps=3):
    net = Denoiser()
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
    for _ in range(steps):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = diffusion_loss(net, cache.batch([0, 1, 2]))
        opt.zero_grad()
        loss.backward()
        opt.step()
    with torch.no_grad(), contextlib.nullcontext():
        val = diffusion_loss(net, cache.batch([3, 4]))
    return loss.item(), val.item()


torch.manual_seed(0)
print("train, val", run(LatentCache(Vae(), torch.rand(5, 3, 32, 32))))
