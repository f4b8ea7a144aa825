"""
title: a numpy sin-cos position table replaces the parameter after the model was cast to bfloat16
expect: collision
fix_at: 43, 50

After https://github.com/mlfoundations/open_clip/issues/916 (LayerNorm: expected Float but found BFloat16) and
https://github.com/mlfoundations/open_clip/issues/1021.
Right: give the table the dtype of the patch embedding.
"""
import numpy as np
import torch
from torch import nn

torch.manual_seed(19)


def sincos_table(dim, grid):
    omega = 1.0 / 10000 ** (np.arange(dim // 4) / (dim // 4))
    y, x = np.meshgrid(np.arange(grid), np.arange(grid), indexing="ij")
    parts = [f(np.outer(axis.reshape(-1), omega)) for axis in (y, x) for f in (np.sin, np.cos)]
    return np.concatenate(parts, axis=1).astype(np.float32)


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.mix = nn.Linear(dim, dim)

    def forward(self, x):
        return x + self.mix(self.norm(x))  # COLLIDES


class Encoder(nn.Module):
    def __init__(self, dim=32, patch=4, depth=2):
        super().__init__()
        self.patch = nn.Conv2d(3, dim, patch, stride=patch)
        self.blocks = nn.ModuleList(Block(dim) for _ in range(depth))
        self.table = None

    def forward(self, image):
        x = self.patch(image).flatten(2).transpose(1, 2)
        x = x + self.table
        for block in self.blocks:
            x = block(x)
        return x.mean(1)


def resize_table(model, image_size, patch=4):
    table = sincos_table(model.patch.out_channels, image_size // patch)
    model.table = torch.from_numpy(table)[None]  # BORN
    return model


class Retrieval:
    def __init__(self, dtype):
        self.dtype = dtype
        self.model = resize_table(Encoder().to(dtype).eval(), image_size=16)

    @torch.inference_mode()
    def index(self, images):
        vectors = [self.model(batch.to(self.dtype)) for batch in images.split(4)]
        return nn.functional.normalize(torch.cat(vectors).float(), dim=-1)


vectors = Retrieval(torch.bfloat16).index(torch.rand(8, 3, 16, 16))
print((vectors @ vectors.t()).mean().item())
