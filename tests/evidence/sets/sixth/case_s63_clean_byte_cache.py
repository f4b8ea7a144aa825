"""
title: keys and values are cached as bytes with a float32 scale per token and head, and widened for attention
expect: clean

After https://github.com/vllm-project/vllm/pull/36893, https://github.com/sgl-project/sglang/pull/15285 and https://github.com/ikawrakow/ik_llama.cpp/pull/208.
"""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(802)


class ByteCache:
    def __init__(self):
        self.codes, self.scales = [], []

    def add(self, x):
        scale = x.float().abs().amax(-1, keepdim=True).clamp(min=1e-8) / 127
        self.codes.append((x.float() / scale).round().to(torch.int8))
        self.scales.append(scale)

    def read(self, dtype):
        return (torch.cat(self.codes, dim=2).float() * torch.cat(self.scales, dim=2)).to(dtype)


class PlainCache:
    def __init__(self):
        self.parts = []

    def add(self, x):
        self.parts.append(x)

    def read(self, dtype):
        return torch.cat(self.parts, dim=2).to(dtype)


class Layer(nn.Module):
    def __init__(self, dim, heads=2):
        super().__init__()
        self.heads = heads
        self.norm, self.qkv, self.out = nn.LayerNorm(dim), nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x, cache):
        q, k, v = (p.unflatten(-1, (self.heads, -1)).transpose(1, 2) for p in self.qkv(self.norm(x)).chunk(3, dim=-1))
        keys, values = cache
        keys.add(k)
        values.add(v)
        return x + self.out(F.scaled_dot_product_attention(q, keys.read(q.dtype), values.read(q.dtype)).transpose(1, 2).flatten(2))


class Model(nn.Module):
    def __init__(self, vocab=40, dim=32, depth=2):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(Layer(dim) for _ in range(depth))

    @torch.no_grad()
    def logits(self, ids, cache_class):
        caches = [(cache_class(), cache_class()) for _ in self.layers]
        out = []
        for t in range(ids.shape[1]):
            x = self.embed(ids[:, t:t + 1])
            for layer, cache in zip(self.layers, caches):
                x = layer(x, cache)
            out.append((x @ self.embed.weight.t()).float() / 8)
        return torch.cat(out, dim=1)


model = Model().to(torch.bfloat16)
ids = torch.randint(0, 40, (4, 32))
bytes_, plain = model.logits(ids, ByteCache), model.logits(ids, PlainCache)
nll = [F.cross_entropy(l[:, :-1].flatten(0, 1), ids[:, 1:].flatten()).item() for l in (bytes_, plain)]
print("same tokens", round((bytes_.argmax(-1) == plain.argmax(-1)).float().mean().item(), 3), "loss", round(nll[0], 3), "without bytes", round(nll[1], 3))
