"""
title: a hand-written RMS norm squares half activations that its float16 cannot hold
expect: silent:overflow
"""
import torch
from torch import nn


class RMSNorm(nn.Module):
    def __init__(self, width, eps=1e-5):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)  # BORN


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = RMSNorm(width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(nn.functional.silu(self.up(self.norm(x))))


def load(dtype):
    model = nn.Sequential(nn.Embedding(50, 32), Block(32), Block(32)).eval()
    nn.init.normal_(model[0].weight, std=400.0)
    return model.to(dtype)  # BORN


torch.manual_seed(0)
model = load(torch.float16)
with torch.inference_mode():
    print(model(torch.randint(0, 50, (2, 6))).shape)
