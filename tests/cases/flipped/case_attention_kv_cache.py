"""
title: a temperature for each head kept as a plain attribute widens the query of a bfloat16 decoder
expect: collision
fix_at: 41

The cache is bfloat16 as it should be. The temperatures are no buffer, so that the cast of the decoder passed them by;
having dimensions they widen the query, and attention compares it with what the cache gives back.
"""
import torch
import torch.nn.functional as F
from torch import nn


class Cache:
    def __init__(self, layers, batch, heads, length, width):
        self.used = 0
        self.store = torch.zeros(layers, 2, batch, heads, length, width, dtype=torch.bfloat16)

    def extend(self, layer, key, value):
        end = self.used + key.shape[2]
        self.store[layer, 0, :, :, self.used:end] = key
        self.store[layer, 1, :, :, self.used:end] = value
        return self.store[layer, :, :, :, :end].unbind(0)

    def advance(self, count):
        self.used += count


class Attention(nn.Module):
    def __init__(self, width, heads, layer):
        super().__init__()
        self.heads, self.layer = heads, layer
        self.focus = torch.linspace(1.0, 1.5, heads).view(heads, 1, 1)  # BORN
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x, cache):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        k, v = cache.extend(self.layer, k, v)
        q = q * self.focus
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=length > 1)  # COLLIDES
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class Decoder(nn.Module):
    def __init__(self, vocabulary=50, width=16, heads=2, depth=2):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(Attention(width, heads, layer) for layer in range(depth))

    def forward(self, ids, cache):
        x = self.tokens(ids)
        for layer in self.layers:
            x = x + layer(x, cache)
        cache.advance(ids.shape[1])
        return x @ self.tokens.weight.t()


@torch.no_grad()
def generate(decoder, ids, count):
    cache = Cache(layers=2, batch=ids.shape[0], heads=2, length=16, width=8)
    step = ids
    for _ in range(count):
        step = decoder(step, cache)[:, -1:].argmax(-1)
        ids = torch.cat([ids, step], dim=1)
    return ids


torch.manual_seed(0)
print(generate(Decoder().to(dtype=torch.bfloat16), torch.tensor([[7, 8, 9]]), count=4))
