"""
title: a text-to-speech decoder in bfloat16 attends over a cache that was allocated in float32
expect: collision
thread: https://github.com/nari-labs/dia/issues/83
fix_at: 32, 42, 53, 54, 79

Expectation, written first: writing a slice into the cache converts silently, reading it back gives float32 keys and
values; the attention gets a bfloat16 query and refuses the mix.
"""
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class DiaConfig:
    channels: int = 3
    vocab: int = 40
    dim: int = 32
    heads: int = 4
    max_tokens: int = 12
    compute_dtype: str = "bfloat16"

    @property
    def dtype(self):
        return getattr(torch, self.compute_dtype)


class KVCache:
    def __init__(self, heads, max_len, head_dim, dtype=torch.float32):  # BORN
        self.k = torch.zeros(1, heads, max_len, head_dim, dtype=dtype)
        self.v = torch.zeros(1, heads, max_len, head_dim, dtype=dtype)
        self.current = 0

    def update(self, k, v):
        end = self.current + k.shape[2]
        self.k[:, :, self.current : end] = k
        self.v[:, :, self.current : end] = v
        self.current = end
        return self.k[:, :, :end], self.v[:, :, :end]


class Attention(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.heads = cfg.heads
        self.qkv, self.o_proj = nn.Linear(cfg.dim, 3 * cfg.dim, bias=False), nn.Linear(cfg.dim, cfg.dim, bias=False)

    def forward(self, x, cache):
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, dim=-1))
        attn_k, attn_v = cache.update(k, v)
        out = F.scaled_dot_product_attention(q, attn_k, attn_v, is_causal=q.shape[2] > 1)  # COLLIDES
        return self.o_proj(out.transpose(1, 2).flatten(2))


class DecoderLayer(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.pre_sa_norm, self.pre_mlp_norm = nn.RMSNorm(cfg.dim, eps=1e-5), nn.RMSNorm(cfg.dim, eps=1e-5)
        self.self_attention = Attention(cfg)
        self.mlp = nn.Sequential(nn.Linear(cfg.dim, 2 * cfg.dim), nn.SiLU(), nn.Linear(2 * cfg.dim, cfg.dim))

    def forward(self, x, cache):
        x = x + self.self_attention(self.pre_sa_norm(x), cache)
        return x + self.mlp(self.pre_mlp_norm(x))


class Decoder(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.embeddings = nn.ModuleList(nn.Embedding(cfg.vocab, cfg.dim) for _ in range(cfg.channels))
        self.layers = nn.ModuleList(DecoderLayer(cfg) for _ in range(2))
        self.norm, self.logits = nn.RMSNorm(cfg.dim, eps=1e-5), nn.Linear(cfg.dim, cfg.channels * cfg.vocab)

    def init_caches(self):
        return [KVCache(self.cfg.heads, self.cfg.max_tokens, self.cfg.dim // self.cfg.heads) for _ in self.layers]

    def decode_step(self, tokens, caches):
        x = sum(e(tokens[..., i]) for i, e in enumerate(self.embeddings))
        for layer, cache in zip(self.layers, caches):
            x = layer(x, cache)
        return self.logits(self.norm(x)[:, -1]).float().unflatten(-1, (self.cfg.channels, self.cfg.vocab))


class Dia:
    def __init__(self, cfg):
        torch.manual_seed(11)
        self.cfg = cfg
        self.decoder = Decoder(cfg).to(cfg.dtype).eval()

    @torch.inference_mode()
    def generate(self, prompt, steps=5):
        caches, tokens, codes = self.decoder.init_caches(), prompt, []
        for _ in range(steps):
            logits = self.decoder.decode_step(tokens, caches)
            tokens = logits.argmax(-1)[:, None]
            codes.append(tokens[0, 0].tolist())
        return codes


def main():
    cfg = DiaConfig()
    prompt = torch.randint(0, cfg.vocab, (1, 6, cfg.channels), generator=torch.Generator().manual_seed(5))
    print(Dia(cfg).generate(prompt))


main()
