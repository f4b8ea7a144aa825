"""
title: activations are kept as bfloat16 between forward and backward, everything is computed in float32
expect: clean

After https://github.com/pytorch/pytorch/issues/64729, https://github.com/pytorch/pytorch/issues/148222 and https://github.com/inclusionAI/AReno/pull/538.
"""
import contextlib

import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

torch.manual_seed(805)


class Saved:
    """Packs large float32 activations, leaves parameters and small things alone."""

    def __init__(self, model, least=1024):
        self.parameters, self.least = {p.data_ptr() for p in model.parameters()}, least
        self.before = self.after = 0

    def pack(self, x):
        if x.dtype != torch.float32 or x.numel() < self.least or x.data_ptr() in self.parameters:
            return x
        small = x.to(torch.bfloat16)
        self.before, self.after = self.before + x.nbytes, self.after + small.nbytes
        return small

    def unpack(self, x):
        return x.float() if x.dtype == torch.bfloat16 else x

    def __call__(self):
        return saved_tensors_hooks(self.pack, self.unpack)


class Net(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, dim), nn.GELU()) for _ in range(4))
        self.inner, self.out = nn.Linear(8, dim), nn.Linear(dim, 3)

    def forward(self, x):
        x = self.inner(x)
        for layer in self.layers:
            x = x + layer(x)
        return self.out(x)


def batch(count=128):
    x = torch.randn(count, 8)
    return x, (x[:, 0] * x[:, 1] > 0).long() + (x[:, 2] > 0.5).long()


def train(small, steps=80):
    torch.manual_seed(805)
    model = Net()
    saved = Saved(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for _ in range(steps):
        x, y = batch()
        with saved() if small else contextlib.nullcontext():
            loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    x, y = batch(1000)
    with torch.no_grad():
        return F.cross_entropy(model(x), y).item(), saved


small, saved = train(True)
print("loss", round(small, 2), "without", round(train(False)[0], 2), "saved bytes halved", saved.after * 2 == saved.before)
