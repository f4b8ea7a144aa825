"""
title: sigmas of a flow-matching schedule, made in float64 by numpy, weight a loss and reach the projector
expect: collision
fix_at: 24, 31, 32

kohya's flux: sigmas from numpy; noisy = (1 - sigma) * x + sigma * noise becomes float64.
"""
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


class Flow(nn.Module):
    def __init__(self):
        super().__init__()
        self.x_embedder, self.out = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        return self.out(F.silu(self.x_embedder(x)))  # COLLIDES


def get_sigmas(n, shift=3.0):
    t = torch.from_numpy(np.random.default_rng(0).uniform(size=n))  # BORN
    return shift * t / (1 + (shift - 1) * t)


torch.manual_seed(0)
net = Flow()
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
latents, noise = torch.randn(2, 5, 8), torch.randn(2, 5, 8)
sigmas = get_sigmas(2).view(-1, 1, 1)
noisy = (1 - sigmas) * latents + sigmas * noise
loss = F.mse_loss(net(noisy), noise - latents)
loss.backward()
optimizer.step()
