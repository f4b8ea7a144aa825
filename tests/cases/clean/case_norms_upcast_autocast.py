"""
title: norms upcast to float32 on a frozen bfloat16 base, adapters in float32, training under autocast
expect: clean

What k-bit preparation does. Each norm's output is float32 and the next matmul, under autocast, is not.
"""
import torch
import torch.nn.functional as F
from torch import nn


class RootNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        wide = x.float()
        return self.weight * (wide * torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + 1e-6)).to(x.dtype)


class Adapted(nn.Module):
    def __init__(self, width, rank):
        super().__init__()
        self.base, self.down, self.up = nn.Linear(width, width), nn.Linear(width, rank, bias=False), nn.Linear(rank, width, bias=False)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


class Block(nn.Module):
    def __init__(self, width, rank):
        super().__init__()
        self.norm, self.drop, self.mix = RootNorm(width), nn.Dropout(0.1), Adapted(width, rank)

    def forward(self, x):
        return x + F.silu(self.mix(self.drop(self.norm(x))))


def prepare(model):
    model.requires_grad_(False).to(torch.bfloat16)
    for name, parameter in model.named_parameters():
        if "norm" in name or ".down" in name or ".up" in name:
            parameter.data = parameter.data.to(torch.float32)
        parameter.requires_grad_(".down" in name or ".up" in name)
    return model


torch.manual_seed(0)
model = prepare(nn.Sequential(*(Block(32, 2) for _ in range(3))))
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
for _ in range(3):
    x = torch.randn(4, 32).bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = (model(x) - x).float().square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.dtype)