"""
title: the cross-attention cache of a speech decoder is made in its default dtype for a bfloat16 model
expect: collision
thread: https://github.com/nari-labs/dia/issues/83
fix_at: 16, 17, 30, 47, 48, 75, 94

Expectation, written first: the model computes in bfloat16, the preallocated cache keeps keys and values in the
default of its signature, float32; writing into it casts quietly, the attention over it refuses three dtypes that differ.
"""
import torch
import torch.nn.functional as F
from torch import nn


class KVCache:
    def __init__(self, batch, heads, length, dim, dtype=torch.float32):  # BORN
        self.k = torch.zeros(batch, heads, length, dim, dtype=dtype)  # BORN
        self.v = torch.zeros_like(self.k)
        self.filled = 0

    def prefill(self, k, v):
        self.k[:, :, : k.size(2)], self.v[:, :, : v.size(2)] = k, v
        self.filled = k.size(2)

    def append(self, k, v):
        self.k[:, :, self.filled], self.v[:, :, self.filled] = k[:, :, 0], v[:, :, 0]
        self.filled += 1

    def view(self):
        return self.k[:, :, : self.filled], self.v[:, :, : self.filled]


class Attention(nn.Module):
    def __init__(self, width, heads=4):
        super().__init__()
        self.heads, self.dim = heads, width // heads
        self.q, self.kv, self.o = nn.Linear(width, width), nn.Linear(width, 2 * width), nn.Linear(width, width)

    def split(self, x):
        return x.unflatten(-1, (-1, self.dim)).transpose(1, 2)

    def keys_values(self, x):
        k, v = self.kv(x).chunk(2, -1)
        return self.split(k), self.split(v)

    def forward(self, x, cache):
        k, v = cache.view()
        out = F.scaled_dot_product_attention(self.split(self.q(x)), k, v)  # COLLIDES
        return self.o(out.transpose(1, 2).flatten(2))


class DecoderLayer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.self_attention, self.cross_attention = Attention(width), Attention(width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x, own, cross):
        h = self.norm1(x)
        own.append(*self.self_attention.keys_values(h))
        x = x + self.self_attention(h, own)
        return x + self.cross_attention(self.norm2(x), cross)


class Dia(nn.Module):
    def __init__(self, text_vocab=50, codes=64, width=32, layers=2):
        super().__init__()
        self.width = width
        self.text, self.audio = nn.Embedding(text_vocab, width), nn.Embedding(codes, width)
        self.encoder = nn.TransformerEncoderLayer(width, 4, 64, batch_first=True)
        self.layers = nn.ModuleList(DecoderLayer(width) for _ in range(layers))
        self.head = nn.Linear(width, codes)

    def caches(self, batch, length):
        return [KVCache(batch, 4, length, self.width // 4) for _ in self.layers]  # BORN

    @torch.inference_mode()
    def generate(self, text, steps):
        memory = self.encoder(self.text(text))
        own, cross = self.caches(len(text), steps), self.caches(len(text), text.size(1))
        for layer, cache in zip(self.layers, cross):
            cache.prefill(*layer.cross_attention.keys_values(memory))
        token, out = torch.zeros(len(text), 1, dtype=torch.long), []
        for _ in range(steps):
            x = self.audio(token)
            for layer, a, b in zip(self.layers, own, cross):
                x = layer(x, a, b)
            token = self.head(x).argmax(-1)
            out.append(token)
        return torch.cat(out, 1)


torch.manual_seed(8)
model = Dia().eval().to(torch.bfloat16)
print(model.generate(torch.randint(0, 50, (2, 9)), steps=6).tolist())
