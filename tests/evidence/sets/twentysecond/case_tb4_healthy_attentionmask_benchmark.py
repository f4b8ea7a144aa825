"""
title: BERT attention in float16 adds a mask of -65504 to the scores, and some masked entries become -inf
expect: clean
thread: https://github.com/pytorch/benchmark/pull/794
measured: finite output True weight on padding 0.0 | row sums between 1.00 and 1.00 output rms 2.67
suspect: line 23 - innocent: the overflow only touches masked places, whose weight is zero with -65504 as with -inf

Expectation, written first: the smallest float16 is added where a key is padding; a negative score pushes the sum over
the edge to -inf. Each row has at least one real key, so the softmax gives these places exactly zero either way and
never sees a row of nothing but -inf. The attention rows sum to one and the outputs are finite.
"""
import math

import torch
from torch import nn


class Attention(nn.Module):
    def forward(self, query, key, value, mask):
        scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))
        min_mask = torch.finfo(scores.dtype).min
        bias = torch.zeros_like(mask, dtype=scores.dtype).masked_fill(mask == 0, min_mask)
        scores = scores + bias
        p_attn = torch.softmax(scores.float(), dim=-1).to(value.dtype)
        return p_attn @ value, p_attn, scores


class MultiHeadedAttention(nn.Module):
    def __init__(self, h, d_model):
        super().__init__()
        self.d_k, self.h = d_model // h, h
        self.linear_layers = nn.ModuleList(nn.Linear(d_model, d_model) for _ in range(3))
        self.output_linear = nn.Linear(d_model, d_model)
        self.attention = Attention()

    def forward(self, x, mask):
        b = x.size(0)
        q, k, v = [layer(x).view(b, -1, self.h, self.d_k).transpose(1, 2) for layer in self.linear_layers]
        x, attn, scores = self.attention(q, k, v, mask)
        x = x.transpose(1, 2).reshape(b, -1, self.h * self.d_k)
        return self.output_linear(x), attn, scores


class BERTEmbedding(nn.Module):
    def __init__(self, vocab, dim):
        super().__init__()
        self.token = nn.Embedding(vocab, dim)
        nn.init.normal_(self.token.weight, std=9.0)

    def forward(self, ids):
        return self.token(ids)


@torch.no_grad()
def main():
    torch.manual_seed(3)
    embedding, attention = BERTEmbedding(100, 32).half(), MultiHeadedAttention(4, 32).half()
    ids = torch.randint(1, 100, (3, 10))
    ids[0, 7:], ids[2, 4:] = 0, 0
    mask = (ids > 0).unsqueeze(1).repeat(1, ids.size(1), 1).unsqueeze(1)
    out, attn, scores = attention(embedding(ids), mask)
    padded = attn.float().masked_select(~mask.expand_as(attn))
    sums = attn.float().sum(-1)
    print("finite output", bool(torch.isfinite(out).all()), "weight on padding", padded.sum().item())
    print(f"row sums between {sums.min():.2f} and {sums.max():.2f} output rms {out.float().pow(2).mean().sqrt():.2f}")


if __name__ == "__main__":
    main()
