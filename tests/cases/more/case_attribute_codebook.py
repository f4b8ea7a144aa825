"""
title: codes cast to the dtype of a codebook that is itself out of line
expect: collision
fix_at: 30, 31

`.to(self.book.dtype)` is meant to be careful, and the lookup itself agrees with itself. The book was set after the
network was cast, from centres that numpy kept in float32.
"""
import numpy as np
import torch
from torch import nn


def centres(samples, count):
    """Every so manieth sample, ordered by length: a stand-in for k-means."""
    order = np.argsort(np.linalg.norm(samples, axis=1))
    return samples[order[:: len(samples) // count][:count]]


class Quantizer(nn.Module):
    def __init__(self, count, width):
        super().__init__()
        self.register_buffer("book", torch.randn(count, width))

    def fit(self, samples):
        self.book = torch.from_numpy(centres(samples, len(self.book)).astype("float32"))  # BORN

    def forward(self, x):
        away = (x.unsqueeze(-2) - self.book).square().sum(dim=-1)
        share = (-away).softmax(dim=-1).to(self.book.dtype)
        return share @ self.book


class AutoEncoder(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(12, width), nn.Tanh())
        self.quantize = Quantizer(10, width)
        self.decode = nn.Sequential(nn.Dropout(0.1), nn.Linear(width, 12))

    def forward(self, x):
        return self.decode(self.quantize(self.encode(x)))  # COLLIDES


torch.manual_seed(0)
model = AutoEncoder().to(torch.bfloat16)
x = torch.randn(6, 12).to(torch.bfloat16)
print(model(x).dtype)
model.quantize.fit(np.random.default_rng(0).normal(size=(50, 8)))
print(model(x).dtype)
