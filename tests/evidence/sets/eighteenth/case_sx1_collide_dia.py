"""
title: rotary position embedding hands a float32 query to attention while the cached keys and values are float16
expect: collision
thread: https://github.com/nari-labs/dia/issues/158

Expectation, written first: the decoder runs in float16 (compute_dtype), its key/value cache is allocated in float16
and a slice assignment casts whatever is written. RotaryEmbedding computes sin and cos in float32 and never casts the
rotated tensor back, so the query alone stays float32 and scaled_dot_product_attention refuses the three dtypes.
"""
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class DiaConfig:
    n_embd: int = 32
    n_heads: int = 4
    head_dim: int = 8
    max_len: int = 16


class RotaryEmbedding(nn.Module):
    def __init__(self, dims, max_timescale=10000):
        super().__init__()
        fraction = torch.arange(0, dims // 2) * 2.0 / dims
        self.register_buffer("timescale", max_timescale**fraction, persistent=False)

    def forward(self, x, position):
        sinusoid = position[:, :, None, None].float() / self.timescale.float()
        sin, cos = torch.sin(sinusoid), torch.cos(sinusoid)  # BORN
        first, second = torch.chunk(x, 2, dim=-1)
        first_part = first * cos - second * sin  # BORN
        second_part = second * cos + first * sin  # BORN
        return torch.cat((first_part, second_part), dim=-1)  # BORN


class KVCache:
    def __init__(self, cfg, batch, dtype):
        self.k, self.v = torch.zeros(2, batch, cfg.n_heads, cfg.max_len, cfg.head_dim, dtype=dtype)

    def update(self, k, v, idx):
        self.k[:, :, idx : idx + 1] = k
        self.v[:, :, idx : idx + 1] = v
        return self.k[:, :, : idx + 1], self.v[:, :, : idx + 1]


class SelfAttention(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cfg, width = cfg, cfg.n_heads * cfg.head_dim
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(cfg.n_embd, width, bias=False) for _ in range(3))
        self.o_proj = nn.Linear(width, cfg.n_embd, bias=False)
        self.rotary_emb = RotaryEmbedding(cfg.head_dim)

    def forward(self, x, position, cache, idx):
        shape = (*x.shape[:2], self.cfg.n_heads, self.cfg.head_dim)
        q = self.rotary_emb(self.q_proj(x).view(shape), position).transpose(1, 2)  # BORN
        k = self.rotary_emb(self.k_proj(x).view(shape), position).transpose(1, 2)
        attn_k, attn_v = cache.update(k, self.v_proj(x).view(shape).transpose(1, 2), idx)
        out = F.scaled_dot_product_attention(q, attn_k, attn_v, scale=1.0)  # BORN COLLIDES
        return self.o_proj(out.transpose(1, 2).flatten(2))


class DiaDecoder(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.embed = nn.Embedding(60, cfg.n_embd)
        self.layers = nn.ModuleList(SelfAttention(cfg) for _ in range(2))
        self.logits = nn.Linear(cfg.n_embd, 60)

    def decode_step(self, token, caches, idx):
        x, position = self.embed(token), torch.full_like(token, idx)
        for layer, cache in zip(self.layers, caches):
            x = x + layer(x, position, cache, idx)
        return self.logits(x)


if __name__ == "__main__":
    torch.manual_seed(0)
    cfg, compute_dtype = DiaConfig(), torch.float16
    model = DiaDecoder(cfg).to(compute_dtype).eval()
    caches = [KVCache(cfg, 2, compute_dtype) for _ in model.layers]
    tok = torch.zeros(2, 1, dtype=torch.long)
    with torch.inference_mode():
        for step in range(4):
            tok = model.decode_step(tok, caches, step).argmax(-1)
    print(tok.squeeze(1))
