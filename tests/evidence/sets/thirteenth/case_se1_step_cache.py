"""
title: a text-to-speech decoder answers step by step from preallocated caches
expect: collision
thread: https://github.com/nari-labs/dia/issues/83
fix_at: 16, 17, 26, 40, 41, 67, 79, 92

Expectation, written first: the model computes in bfloat16 but its key/value cache is allocated in the default
float32; writing into it converts quietly, reading from it gives float32 keys to a bfloat16 query.
"""
import torch
import torch.nn.functional as F
from torch import nn


class KVCache:
    def __init__(self, batch, heads, length, dim, dtype=torch.float32):  # BORN
        self.k = torch.zeros(batch, heads, length, dim, dtype=dtype)  # BORN
        self.v = torch.zeros_like(self.k)
        self.current = 0

    def update(self, k, v):
        end = self.current + k.shape[2]
        self.k[:, :, self.current : end] = k
        self.v[:, :, self.current : end] = v
        self.current = end
        return self.k[:, :, :end], self.v[:, :, :end]


class SelfAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(dim, dim, bias=False) for _ in range(4))

    def split(self, x):
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, x, cache):
        q, k, v = self.split(self.q_proj(x)), self.split(self.k_proj(x)), self.split(self.v_proj(x))
        k, v = cache.update(k, v)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=q.shape[2] > 1)  # COLLIDES
        return self.o_proj(out.transpose(1, 2).flatten(2))


class DecoderLayer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(dim), nn.RMSNorm(dim)
        self.attn = SelfAttention(dim, heads)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.SiLU(), nn.Linear(2 * dim, dim))

    def forward(self, x, cache):
        x = x + self.attn(self.norm1(x), cache)
        return x + self.mlp(self.norm2(x))


class Decoder(nn.Module):
    def __init__(self, vocab=64, dim=32, heads=4, layers=2):
        super().__init__()
        self.dim, self.heads = dim, heads
        self.embed = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(DecoderLayer(dim, heads) for _ in range(layers))
        self.norm, self.logits = nn.RMSNorm(dim), nn.Linear(dim, vocab, bias=False)

    def precompute_caches(self, batch, length):
        shape = (batch, self.heads, length, self.dim // self.heads)
        return [KVCache(*shape) for _ in self.layers]

    def decode_step(self, ids, caches):
        x = self.embed(ids)
        for layer, cache in zip(self.layers, caches):
            x = layer(x, cache)
        return self.logits(self.norm(x[:, -1])).float()


class Dia:
    def __init__(self, compute_dtype):
        torch.manual_seed(0)
        self.model = Decoder().to(compute_dtype).eval()

    @torch.inference_mode()
    def generate(self, prompt, max_tokens=12):
        caches = self.model.precompute_caches(prompt.shape[0], prompt.shape[1] + max_tokens)
        out, ids = [], prompt
        for _ in range(max_tokens):
            ids = self.model.decode_step(ids, caches).argmax(-1, keepdim=True)
            out.append(ids)
        return torch.cat(out, 1)


if __name__ == "__main__":
    dia = Dia(compute_dtype=torch.bfloat16)
    prompt = torch.randint(64, (2, 6), generator=torch.Generator().manual_seed(1))
    print(dia.generate(prompt).tolist())
