"""
title: the attention bias of unit positions is made while the default dtype is float64
expect: collision
thread: https://github.com/neuro-galaxy/torch_brain/pull/77
fix_at: 20, 38, 39, 47, 52, 60, 70

Expectation, written first: the geometry helper raises the default dtype for its own precision, the bias keeps it;
attention takes a bias of its query's dtype, float32, or none, but not a double.
"""
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import nn


@contextmanager
def precise():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)  # BORN
    try:
        yield
    finally:
        torch.set_default_dtype(before)


class ProbeGeometry:
    def __init__(self, rows, pitch=0.04):
        self.rows, self.pitch = rows, pitch

    def distance_bias(self, heads):
        with precise():
            y = torch.arange(self.rows) * self.pitch  # BORN
            x = (torch.arange(self.rows) % 2) * self.pitch / 2  # BORN
            xy = torch.stack([x, y], 1)
            dist = torch.cdist(xy, xy)
            slopes = 2.0 ** -torch.arange(1, heads + 1)
            bias = -slopes[:, None, None] * dist
        return bias


class UnitAttention(nn.Module):
    def __init__(self, dim, heads, bias):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.register_buffer("bias", bias)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=self.bias)  # COLLIDES
        return self.out(y.transpose(1, 2).reshape(b, n, d))


class SpikeModel(nn.Module):
    def __init__(self, geometry, dim=16, heads=4):
        super().__init__()
        self.embed = nn.Linear(10, dim)
        self.attend = UnitAttention(dim, heads, geometry.distance_bias(heads))
        self.readout = nn.Linear(dim, 2)

    def forward(self, counts):
        x = self.embed(counts)
        return self.readout((x + self.attend(x)).mean(1))


def run():
    torch.manual_seed(0)
    model = SpikeModel(ProbeGeometry(rows=12))
    counts = torch.poisson(torch.full((4, 12, 10), 2.0))
    loss = model(counts).pow(2).mean()
    loss.backward()
    return loss.item()


print(f"{run():.4f}")
