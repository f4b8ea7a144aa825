"""
title: rotary positions of a model cast to bfloat16 merge in groups beyond 256
expect: silent:precision-loss|downcast
thread: https://github.com/InternLM/InternLM/issues/237
measured: distinct rotary rows 513 of 1025, looks one back: tokens 1-200 1.00, tokens 600-1000 0.25
widened: distinct rotary rows 1025 of 1025, looks one back: tokens 1-200 1.00, tokens 600-1000 1.00
innocent: distinct rotary rows 513 of 1025, looks one back: tokens 1-200 1.00, tokens 600-1000 0.25
suspect: line 51 harmless (weights of 1024 tokens, normalized inside in float32)

Expectation, written first: the inverse frequencies are a buffer, so casting the model to bfloat16 takes them along, and
the positions are made in the buffer's dtype: beyond 256 neighbours share a rotary row. A head that looks one token back
finds the wrong token most of the time. The bfloat16 softmax is innocent.
"""
import torch
import torch.nn as nn


class RotaryEmbedding(nn.Module):
    def __init__(self, dim, base=10000):
        super().__init__()
        inv_freq = 1.0 / (base ** (torch.arange(0, dim, 2).float() / dim))
        self.register_buffer("inv_freq", inv_freq, persistent=False)  # BORN

    def forward(self, seqlen, dtype):
        t = torch.arange(seqlen, dtype=self.inv_freq.dtype)  # BORN
        freqs = torch.outer(t, self.inv_freq)
        emb = torch.cat((freqs, freqs), dim=-1)
        return emb.cos().to(dtype), emb.sin().to(dtype)


def rotate_half(x):
    x1, x2 = x.chunk(2, dim=-1)
    return torch.cat((-x2, x1), dim=-1)


class PreviousTokenHead(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.wq = nn.Linear(dim, dim, bias=False)
        self.wk = nn.Linear(dim, dim, bias=False)
        self.rotary_emb = RotaryEmbedding(dim)
        nn.init.eye_(self.wq.weight)
        nn.init.eye_(self.wk.weight)

    def forward(self, x):
        seqlen = x.shape[0]
        cos, sin = self.rotary_emb(seqlen + 1, x.dtype)
        q = self.wq(x) * cos[:-1] + rotate_half(self.wq(x)) * sin[:-1]
        k = self.wk(x) * cos[1:] + rotate_half(self.wk(x)) * sin[1:]
        scores = (q @ k.t()).masked_fill(torch.ones(seqlen, seqlen).triu(0).bool(), -1e4)
        weights = torch.softmax(scores, dim=-1)
        return weights, torch.unique(cos, dim=0).shape[0]


def accuracy(weights, first, last):
    picked = weights[first:last].float().argmax(dim=-1)
    return (picked == torch.arange(first, last) - 1).float().mean().item()


def main():
    torch.manual_seed(0)
    model = PreviousTokenHead().to(torch.bfloat16)  # BORN
    x = torch.ones(1024, 64, dtype=torch.bfloat16)
    with torch.no_grad():
        weights, rows = model(x)
    print(f"distinct rotary rows {rows} of 1025, looks one back: tokens 1-200 {accuracy(weights, 1, 200):.2f}, tokens 600-1000 {accuracy(weights, 600, 1000):.2f}")


main()
