"""
title: a matrix of the second block drawn anew after the model was cast
expect: collision
culprit: blocks.1.up.weight

The table that is re-grown comes back to bfloat16. The layer that replaces an old one is made in the default dtype; the
first block, the stream and all the other weights are bfloat16.
"""
import math

import torch
from torch import nn


class Positions(nn.Module):
    def __init__(self, length, width):
        super().__init__()
        self.register_buffer("table", torch.zeros(length, width))
        self.fill()

    @torch.no_grad()
    def fill(self):
        length, width = self.table.shape
        place = torch.arange(length).unsqueeze(1)
        rate = torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
        self.table[:, 0::2] = torch.sin(place * rate)
        self.table[:, 1::2] = torch.cos(place * rate)

    def grow(self, length):
        dtype = self.table.dtype
        self.table = torch.zeros(length, self.table.shape[1])
        self.fill()
        self.table = self.table.to(dtype)

    def forward(self, x):
        return x + self.table[: x.shape[1]]


class TokenShift(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gate = nn.Parameter(torch.full((width,), 0.3))

    def forward(self, x):
        return torch.lerp(x, x.roll(1, dims=1), self.gate.to(x.dtype))


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.shift = TokenShift(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.shift(x))))  # COLLIDES


class Model(nn.Module):
    def __init__(self, vocabulary=60, width=16, length=8):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = Positions(length, width)
        self.blocks = nn.ModuleList([Block(width), Block(width)])

    def forward(self, ids):
        x = self.positions(self.tokens(ids))
        for block in self.blocks:
            x = block(x)
        return x @ self.tokens.weight.t()


torch.manual_seed(0)
model = Model().to(torch.bfloat16)
print(model(torch.randint(0, 60, (1, 8))).dtype)
model.positions.grow(32)
model.blocks[1].up = nn.Linear(16, 32, bias=False)  # BORN
print(model(torch.randint(0, 60, (1, 20))).dtype)
