"""
title: rotary tables are handed out in BF16 but their phases are formed in FP32: positions stay apart
expect: clean
thread: https://github.com/Modalities/modalities/pull/462
measured: distance 1: early 4.10 late 4.10; distance 64: early 1.98 late 1.98  (with float64 in its place: distance 1: early 4.10 late
    4.10; distance 64: early 1.98 late 1.98)
suspect: 34 bf16 tables: late (the phases are float32, the values lie in [-1, 1])

Expectation, written first: The finished cos and sin are cast to the activation dtype, which looks like the known loss of long positions.
    But inv_freq and the positions are float32 up to the trigonometry and a value in [-1, 1] loses 0.4%: the scores at a fixed distance do
    not drift with the position.
"""
import torch
from torch import nn


class RotaryTransform(nn.Module):
    def __init__(self, n_embd, n_head, base_freq=10000):
        super().__init__()
        dim = n_embd // n_head
        self.inv_freq = 1.0 / (base_freq ** (torch.arange(0, dim, 2).float() / dim))
        self._seq_len, self._cos, self._sin = None, None, None

    def rotate_half(self, x):
        a, b = x.chunk(2, dim=-1)
        return torch.cat((-b, a), dim=-1)

    def _update_cos_sin_tables(self, x):
        seq_len = x.shape[-2]
        if seq_len != self._seq_len:
            t = torch.arange(seq_len, dtype=torch.float32)
            freqs = torch.einsum("i,j->ij", t, self.inv_freq)
            emb = torch.cat((freqs, freqs), dim=-1)
            self._cos, self._sin = emb.cos().to(x.dtype), emb.sin().to(x.dtype)
            self._seq_len = seq_len
        return self._cos, self._sin

    def forward(self, q, k):
        cos, sin = self._update_cos_sin_tables(k)
        return q * cos + self.rotate_half(q) * sin, k * cos + self.rotate_half(k) * sin


class CausalSelfAttention(nn.Module):
    def __init__(self, n_embd=128, n_head=4):
        super().__init__()
        self.rotary, self.head_dim = RotaryTransform(n_embd, n_head), n_embd // n_head

    def scores(self, q, k):
        q, k = self.rotary(q, k)
        return q.float() @ k.float().transpose(-1, -2) / self.head_dim**0.5


torch.manual_seed(0)
attn, seq_len = CausalSelfAttention(), 3000
q = torch.randn(32).to(torch.bfloat16).expand(seq_len, 32)
k = (0.3 * torch.randn(32) + 0.8 * q[0].float()).to(torch.bfloat16).expand(seq_len, 32)
scores = attn.scores(q, k)
for d in (1, 64):
    diag = scores.diagonal(-d)
    print(f"distance {d}: early {diag[:100].mean():.2f} late {diag[-100:].mean():.2f}")
