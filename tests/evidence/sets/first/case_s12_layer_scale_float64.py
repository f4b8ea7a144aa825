"""
title: layer scales from numpy make the residual stream of a bfloat16 model float64; the blocks cast it back each time
expect: silent:promotion
modes: diagnose

trevin-creator/autoresearch-mlx#3/#29, rMLX#413: wide per-layer scales widen the stream. Here numpy's float64.
Measured: 278528 bytes of hidden states are held instead of 81920 (3.4 times).
BORN is the line that makes the parameter from numpy, after the model was cast. Change: .to(dtype) of the block's weights.
"""
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down = nn.RMSNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = None

    def forward(self, x):
        h = self.norm(x.to(self.up.weight.dtype))
        h = self.down(F.gelu(self.up(h)))
        return x + (h if self.scale is None else h * self.scale)


class Net(nn.Module):
    def __init__(self, width=32, depth=4):
        super().__init__()
        self.embed = nn.Embedding(100, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.kept = []

    def forward(self, tokens):
        x = self.embed(tokens)
        self.kept = [x]
        for block in self.blocks:
            x = block(x)
            self.kept.append(x)
        return F.linear(x.to(self.embed.weight.dtype), self.embed.weight)


def add_layer_scales(model, width=32):
    for depth, block in enumerate(model.blocks):
        values = np.full(width, 0.1 / np.sqrt(depth + 1))
        block.scale = nn.Parameter(torch.from_numpy(values))  # BORN
    return model


torch.manual_seed(0)
model = add_layer_scales(Net().to(torch.bfloat16)).eval()
with torch.no_grad():
    logits = model(torch.randint(0, 100, (4, 64)))
held = sum(t.numel() * t.element_size() for t in model.kept)
print("bytes held", held, "in bfloat16", sum(t.numel() * 2 for t in model.kept), tuple(logits.shape))
