"""
title: attention scores at a fixed distance drift with the position: rotary phases are formed in half precision
expect: silent:precision-loss|downcast
thread: https://github.com/EleutherAI/gpt-neox/issues/1003
measured: score at distance 7: first 64 positions 0.2876, last 512 positions min 0.2034 max 0.3163
widened: score at distance 7: first 64 positions 0.2875, last 512 positions min 0.2871 max 0.2880
innocent: score at distance 7: first 64 positions 0.2876, last 512 positions min 0.2033 max 0.3163
suspect: 35 half cos/sin: bounded (values in [-1, 1], after the phase is made)

Expectation, written first: inv_freq and the positions are taken to the model precision before their outer product, so phases near a
    thousand radians have half precision steps of 0.5 to 1. The cos and sin are then of wrong angles. Casting the finished cos/sin to half
    is harmless: values in [-1, 1].
"""
import torch
from torch import nn


def rotate_half(x):
    a, b = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2:]
    return torch.cat((-b, a), dim=-1)


class RotaryEmbedding(nn.Module):
    def __init__(self, dim, base=10000, precision=torch.half):  # BORN
        super().__init__()
        inv_freq = 1.0 / (base ** (torch.arange(0, dim, 2).float() / dim))
        self.register_buffer("inv_freq", inv_freq.to(precision))  # BORN
        self.precision, self.cached = precision, None

    def forward(self, seq_len):
        if self.cached is None or self.cached[0].shape[0] < seq_len:
            t = torch.arange(seq_len).type_as(self.inv_freq)  # BORN
            freqs = t[:, None] * self.inv_freq[None]
            emb = torch.cat((freqs, freqs), dim=-1)
            self.cached = (emb.float().cos().to(self.precision), emb.float().sin().to(self.precision))
        return self.cached[0][:seq_len], self.cached[1][:seq_len]


class ParallelSelfAttention(nn.Module):
    def __init__(self, head_dim):
        super().__init__()
        self.rotary = RotaryEmbedding(head_dim)

    def scores(self, q, k, seq_len):
        cos, sin = (c.float() for c in self.rotary(seq_len))
        q = q * cos + rotate_half(q) * sin
        k = k * cos + rotate_half(k) * sin
        return q @ k.t() / q.shape[-1] ** 0.5


torch.manual_seed(0)
attn, dim, seq_len, dist = ParallelSelfAttention(32), 32, 2048, 7
q = torch.randn(dim).expand(seq_len, dim)
k = (0.6 * torch.randn(dim) + 0.1 * q[0]).expand(seq_len, dim)
same_distance = attn.scores(q, k, seq_len).diagonal(-dist)
early, late = same_distance[:64], same_distance[-512:]
print(f"score at distance {dist}: first 64 positions {early.mean():.4f}, last 512 positions min {late.min():.4f} max {late.max():.4f}")
