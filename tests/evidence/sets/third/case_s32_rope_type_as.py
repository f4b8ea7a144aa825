"""
title: rotary positions take the dtype of a buffer that the model's cast lowered
expect: silent:precision-loss|downcast
modes: diagnose

After nkalyanv99/UNI-D2#6 and huggingface/candle#3520: arange(...).type_as(inv_freq) in bfloat16; positions alias above 256.
Damage: above position 256 half of the neighbours have the same rotation (111 of 479 pairs; repaired 0). Right change: float32 positions and inv_freq.
"""
import torch
import torch.nn as nn


class Rotary(nn.Module):
    def __init__(self, dim, base=10000.0):
        super().__init__()
        inv_freq = 1.0 / (base ** (torch.arange(0, dim, 2).float() / dim))
        self.register_buffer("inv_freq", inv_freq, persistent=False)

    def forward(self, n):
        t = torch.arange(n).type_as(self.inv_freq)  # BORN
        freqs = torch.outer(t, self.inv_freq)  # BORN
        emb = torch.cat([freqs, freqs], -1)
        return emb.cos(), emb.sin()


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


class Attention(nn.Module):
    def __init__(self, dim=32, heads=2):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.rotary = Rotary(dim // heads)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        cos, sin = (t.to(x.dtype) for t in self.rotary(n))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True), q


torch.manual_seed(0)
attn = Attention().to(torch.bfloat16).eval()  # BORN
with torch.no_grad():
    out, q = attn(torch.randn(1, 1, 32, dtype=torch.bfloat16).expand(1, 480, 32))
same = (q[0, :, 1:] == q[0, :, :-1]).all(0).all(-1)
print("neighbours that cannot be told apart:", int(same.sum()), "of", same.numel())
