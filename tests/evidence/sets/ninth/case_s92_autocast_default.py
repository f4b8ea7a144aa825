"""
title: depth and ray trainer enters fp16 autocast without a loss scaler
expect: silent:underflow|zero-gradient
thread: https://github.com/engichang1467/Open-Rig3R/issues/35
measured: ray loss 0.997 -> 0.694 (x1e-4), encoder gradient 2.7e-06
widened: ray loss 0.997 -> 0.100 (x1e-4), encoder gradient 9.3e-06

Expectation, written first: the loss is a mean over many ray components, so the
gradient at the head's half output is far below the smallest half number and becomes
zero; the encoder does not learn and nothing is reported. In bf16 it learns.
"""
import torch
from torch import nn


class RayNet(nn.Module):
    def __init__(self, dim=24, rays=256):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(6, dim), nn.GELU(), nn.Linear(dim, dim), nn.GELU())
        self.ray_head = nn.Linear(dim, 3 * rays)
        self.rays = rays

    def forward(self, x):
        return self.ray_head(self.encoder(x)).view(x.shape[0], self.rays, 3)


def ray_loss(pred, target, weight=1e-4):
    cos = nn.functional.cosine_similarity(pred.float(), target, dim=-1)
    return weight * (1 - cos).mean()


def make_batch(gen, n=64, rays=256):
    cam = torch.randn(n, 6, generator=gen)
    grid = torch.linspace(-1, 1, rays)[None, :, None]
    target = cam[:, None, :3] + grid * cam[:, None, 3:]
    return cam, nn.functional.normalize(target, dim=-1)


def train(steps=60):
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(1)
    model = RayNet()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3, eps=1e-14)
    first = None
    for _ in range(steps):
        cam, target = make_batch(gen)
        with torch.autocast("cpu", dtype=torch.float16):  # BORN
            out = model(cam)
        loss = ray_loss(out, target)
        opt.zero_grad()
        loss.backward()
        opt.step()
        first = first or loss.item()
    gnorm = sum(p.grad.pow(2).sum() for p in model.encoder.parameters()).sqrt().item()
    return first, loss.item(), gnorm


first, last, gnorm = train()
print(f"ray loss {1e4 * first:.3f} -> {1e4 * last:.3f} (x1e-4), encoder gradient {gnorm:.1e}")
