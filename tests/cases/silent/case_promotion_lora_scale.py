"""
title: an adapter's scale as a tensor of one element makes every activation float32
expect: silent:promotion

A number or a tensor without dimensions would have been harmless. Each layer casts its input to its weight's dtype, as
adapters do, which hides that what arrives is float32.
"""
import torch
from torch import nn


class Adapted(nn.Module):
    def __init__(self, base, rank=2, alpha=4.0):
        super().__init__()
        dtype = base.weight.dtype
        self.base = base.requires_grad_(False)
        self.down = nn.Linear(base.in_features, rank, bias=False, dtype=dtype)
        self.up = nn.Linear(rank, base.out_features, bias=False, dtype=dtype)
        self.scale = torch.tensor([alpha / rank])  # BORN

    def forward(self, x):
        x = x.to(self.base.weight.dtype)
        return self.base(x) + self.up(self.down(x)) * self.scale


def adapt(network):
    for name, child in network.named_children():
        setattr(network, name, Adapted(child)) if isinstance(child, nn.Linear) else adapt(child)
    return network


torch.manual_seed(0)
network = adapt(nn.Sequential(nn.Linear(16, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 8)).to(torch.bfloat16))
optimizer = torch.optim.AdamW([p for p in network.parameters() if p.requires_grad], lr=1e-2)
for _ in range(2):
    loss = network(torch.randn(8, 16, dtype=torch.bfloat16)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(loss.dtype)