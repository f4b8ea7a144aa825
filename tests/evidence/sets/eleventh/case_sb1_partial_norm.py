"""
title: a text encoder's norms are built half by a partial, the rest of the model is float32 on the CPU
expect: collision
thread: https://github.com/Nerogar/OneTrainer/issues/655
fix_at: 19, 28, 34, 55, 66, 76

Expectation, written first: the config's norm factory carries a dtype and every LayerNorm has bfloat16 weights;
on the CPU a float32 input with narrower weights is refused.
"""
from dataclasses import dataclass
from functools import partial
from typing import Callable

import torch
from torch import nn


def make_norm(width, dtype=None, eps=1e-5):
    return nn.LayerNorm(width, eps=eps, dtype=dtype)  # BORN


@dataclass
class EncoderConfig:
    vocab: int = 90
    width: int = 24
    heads: int = 3
    layers: int = 2
    norm: Callable = partial(make_norm, dtype=torch.bfloat16, eps=1e-6)  # BORN


class Layer(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.norm1, self.norm2 = cfg.norm(cfg.width), cfg.norm(cfg.width)
        self.heads = cfg.heads
        self.qkv = nn.Linear(cfg.width, 3 * cfg.width)
        self.out = nn.Linear(cfg.width, cfg.width)
        self.mlp = nn.Sequential(nn.Linear(cfg.width, 48), nn.GELU(), nn.Linear(48, cfg.width))

    def attend(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(1, 2).reshape(b, n, d))

    def forward(self, x):
        x = x + self.attend(self.norm1(x))  # COLLIDES
        return x + self.mlp(self.norm2(x))


class TextEncoder(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.tokens = nn.Embedding(cfg.vocab, cfg.width)
        self.layers = nn.ModuleList(Layer(cfg) for _ in range(cfg.layers))

    def forward(self, ids):
        x = self.tokens(ids)
        for layer in self.layers:
            x = layer(x)
        return x[:, -1]


class CaptionCache:
    def __init__(self, encoder):
        self.encoder, self.store = encoder.eval(), {}

    @torch.no_grad()
    def add(self, captions):
        ids = torch.tensor([[ord(c) % 90 for c in s[:12].ljust(12)] for s in captions])
        for name, row in zip(captions, self.encoder(ids)):
            self.store[name] = row


torch.manual_seed(0)
cache = CaptionCache(TextEncoder(EncoderConfig()))
cache.add(["a photo of a cat", "a drawing of two dogs"])
print({k: round(v.norm().item(), 3) for k, v in cache.store.items()})
