"""
title: preallocated key/value cache of a bf16 decoder left in the default dtype
expect: collision
thread: https://github.com/nari-labs/dia/issues/83
fix_at: 44

Expectation, written first: the cache buffers are allocated without a dtype, so float32.
Writing bf16 keys into a slice converts silently, and the attention call is the first
to see a bf16 query beside float32 keys and values. Birth: the allocation.
"""
import torch
import torch.nn.functional as F
from torch import nn


class KVCache:
    def __init__(self, layers, batch, heads, max_len, head_dim):
        shape = (layers, 2, batch, heads, max_len, head_dim)
        self.store = torch.zeros(shape)  # BORN
        self.pos = 0

    def append(self, layer, k, v):
        t = k.shape[2]
        self.store[layer, 0, :, :, self.pos : self.pos + t] = k
        self.store[layer, 1, :, :, self.pos : self.pos + t] = v
        end = self.pos + t
        return self.store[layer, 0, :, :, :end], self.store[layer, 1, :, :, :end]

    def advance(self, t):
        self.pos += t


class DecoderLayer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.out = nn.Linear(dim, dim, bias=False)

    def forward(self, x, cache, layer):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        k, v = cache.append(layer, k, v)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=t > 1)  # COLLIDES
        return x + self.out(y.transpose(1, 2).reshape(b, t, d))


class Decoder(nn.Module):
    def __init__(self, vocab=48, dim=32, heads=4, layers=2):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList(DecoderLayer(dim, heads) for _ in range(layers))
        self.head = nn.Linear(dim, vocab, bias=False)

    @torch.no_grad()
    def generate(self, ids, n):
        cache = KVCache(len(self.blocks), ids.shape[0], 4, ids.shape[1] + n, 8)
        step = ids
        for _ in range(n):
            x = self.emb(step)
            for i, blk in enumerate(self.blocks):
                x = blk(x, cache, i)
            cache.advance(step.shape[1])
            step = self.head(x[:, -1:]).argmax(-1)
            ids = torch.cat([ids, step], 1)
        return ids


torch.manual_seed(1)
model = Decoder().to(torch.bfloat16).eval()
prompt = torch.randint(0, 48, (1, 5))
print("generated:", model.generate(prompt, 6).tolist())
