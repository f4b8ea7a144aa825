"""
title: complex rotary embedding of a bf16 decoder
expect: collision
thread: https://github.com/pytorch/pytorch/issues/95100
fix_at: 23, 33, 34

Expectation, written first: the model is built in bf16, queries pair up as complex
numbers, and view_as_complex has no bf16 version. Birth: the model's cast; casting up
at the view is the fix of every reference implementation.
"""
from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Config:
    dim: int = 32
    heads: int = 4
    seq: int = 12
    vocab: int = 40
    dtype: str = "bfloat16"


def precompute_freqs_cis(head_dim, end, theta=10000.0):
    freqs = 1.0 / theta ** (torch.arange(0, head_dim, 2).float() / head_dim)
    angles = torch.outer(torch.arange(end).float(), freqs)
    return torch.polar(torch.ones_like(angles), angles)


def apply_rotary(x, freqs_cis):
    pairs = x.reshape(*x.shape[:-1], -1, 2)
    xc = torch.view_as_complex(pairs)  # COLLIDES
    out = torch.view_as_real(xc * freqs_cis[: x.shape[1], None, :]).flatten(-2)
    return out.type_as(x)


class Attention(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.h = cfg.heads
        self.wqkv = nn.Linear(cfg.dim, 3 * cfg.dim, bias=False)
        self.wo = nn.Linear(cfg.dim, cfg.dim, bias=False)

    def forward(self, x, freqs):
        b, t, d = x.shape
        q, k, v = (p.view(b, t, self.h, -1) for p in self.wqkv(x).chunk(3, -1))
        q, k = apply_rotary(q, freqs), apply_rotary(k, freqs)
        y = nn.functional.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True)
        return self.wo(y.transpose(1, 2).reshape(b, t, d))


class LM(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.emb = nn.Embedding(cfg.vocab, cfg.dim)
        self.attn = Attention(cfg)
        self.head = nn.Linear(cfg.dim, cfg.vocab, bias=False)
        self.freqs = precompute_freqs_cis(cfg.dim // cfg.heads, cfg.seq)

    def forward(self, ids):
        x = self.emb(ids)
        return self.head(x + self.attn(x, self.freqs))


cfg = Config()
torch.manual_seed(0)
model = LM(cfg).to(getattr(torch, cfg.dtype))  # BORN
ids = torch.randint(0, cfg.vocab, (2, cfg.seq))
logits = model(ids).float()
loss = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
loss.backward()
print("loss", round(loss.item(), 4))
