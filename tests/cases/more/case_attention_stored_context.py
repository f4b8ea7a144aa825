"""
title: prompts stored as float32 arrays condition a half denoiser by cross attention
expect: collision
fix_at: 54

The prompts were encoded long ago and are read from an archive. They pass a concatenation with the empty prompt, which
is float32 as well, before keys are made of them.
"""
import io

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


def archive(**arrays):
    file = io.BytesIO()
    np.savez(file, **arrays)
    file.seek(0)
    return file


def prompts(file):
    with np.load(file) as stored:
        return {name: torch.from_numpy(stored[name]) for name in stored.files}  # BORN


class CrossAttention(nn.Module):
    def __init__(self, width, context):
        super().__init__()
        self.to_q = nn.Linear(width, width, bias=False)
        self.to_k = nn.Linear(context, width, bias=False)
        self.to_v = nn.Linear(context, width, bias=False)

    def forward(self, x, context):
        q, k, v = self.to_q(x), self.to_k(context), self.to_v(context)  # COLLIDES
        return x + F.scaled_dot_product_attention(q, k, v)


class Denoiser(nn.Module):
    def __init__(self, width=16, context=12):
        super().__init__()
        self.inward, self.outward = nn.Conv2d(4, width, 1), nn.Conv2d(width, 4, 1)
        self.attention = CrossAttention(width, context)

    def forward(self, latents, context):
        x = self.inward(latents)
        tokens = self.attention(x.flatten(2).transpose(1, 2), context)
        return self.outward(tokens.transpose(1, 2).view_as(x))


def guided(denoiser, latents, stored, name, scale):
    context = torch.stack([stored["empty"], stored[name]])
    plain, steered = denoiser(latents.repeat(2, 1, 1, 1), context).chunk(2)
    return plain + scale * (steered - plain)


torch.manual_seed(0)
rng = np.random.default_rng(0)
file = archive(**{name: rng.normal(size=(5, 12)).astype(np.float32) for name in ("empty", "lighthouse")})
denoiser, stored = Denoiser().half(), prompts(file)
with torch.no_grad():
    print(guided(denoiser, torch.randn(1, 4, 6, 6).half(), stored, "lighthouse", 3.0).shape)
