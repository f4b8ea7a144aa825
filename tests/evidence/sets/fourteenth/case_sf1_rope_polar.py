"""
title: the rotary table of a language model is made while the default dtype is bfloat16
expect: collision
thread: https://github.com/tenstorrent/tt-metal/pull/27426
fix_at: 16, 17, 18, 57, 67

Expectation, written first: with the default dtype set to bfloat16 the quotient of the integer ranges is bfloat16, and
so are the angles; torch.polar has no complex type for it and refuses.
"""
import torch
import torch.nn.functional as F
from torch import nn


def precompute_freqs_cis(dim, end, theta=500000.0):
    freqs = 1.0 / (theta ** (torch.arange(0, dim, 2) / dim))  # BORN
    freqs = torch.outer(torch.arange(end), freqs)
    return torch.polar(torch.ones_like(freqs), freqs)  # COLLIDES


def apply_rotary(x, freqs_cis):
    pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * freqs_cis[: x.shape[2]]).flatten(-2).type_as(x)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm = nn.RMSNorm(width, eps=1e-5)
        self.wqkv = nn.Linear(width, 3 * width, bias=False)
        self.wo = nn.Linear(width, width, bias=False)

    def forward(self, x, freqs_cis):
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.wqkv(self.norm(x)).chunk(3, -1))
        q, k = apply_rotary(q, freqs_cis), apply_rotary(k, freqs_cis)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.wo(y.transpose(1, 2).flatten(2))


class Transformer(nn.Module):
    def __init__(self, vocab=64, width=32, heads=4, depth=2, length=24):
        super().__init__()
        self.tok = nn.Embedding(vocab, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.head = nn.Linear(width, vocab, bias=False)
        self.freqs_cis = precompute_freqs_cis(width // heads, 2 * length)

    def forward(self, tokens):
        x = self.tok(tokens)
        for block in self.blocks:
            x = block(x, self.freqs_cis)
        return self.head(x)


def build(dtype):
    torch.set_default_dtype(dtype)  # BORN
    try:
        return Transformer()
    finally:
        torch.set_default_dtype(torch.float32)


@torch.inference_mode()
def main():
    torch.manual_seed(1)
    model = build(torch.bfloat16)  # BORN
    tokens = torch.randint(0, 64, (1, 6))
    for _ in range(8):
        tokens = torch.cat((tokens, model(tokens)[:, -1:].argmax(-1)), 1)
    print(tokens[0].tolist())


main()
