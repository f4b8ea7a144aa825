"""
title: An ALiBi table cast to half for a sequence of 1024 gives the same attention
expect: clean
thread: https://github.com/bigscience-workshop/Megatron-DeepSpeed/pull/101
measured: mean attended distance per head 2.1 3.8 7.3 16.1 30.7 63.7 125.6 237.8 | context norm 42.39  (with the suspect widened: mean attended distance per head 2.1 3.8 7.3 16.1 30.7 63.7 125.6 237.8 | context norm 42.39)
suspect: 26 exact

Expectation, written first: The biases slope times position are cast to float16, which looks like positions that fall together. Slopes of eight heads are powers of two
and whole numbers up to 2048 are exact in float16, so every product is exact and the attention is the one of a float32 table.
"""
import math

import torch
import torch.nn as nn


def get_slopes(n):
    start = 2 ** (-2 ** -(math.log2(n) - 3))
    return [start * start ** i for i in range(n)]


def build_alibi_tensor(max_seq_len, num_attention_heads, batch_size, params_dtype):
    slopes = torch.tensor(get_slopes(num_attention_heads))
    positions = torch.arange(max_seq_len)[None, None, :].expand(num_attention_heads, -1, -1)
    alibi = slopes[:, None, None] * positions
    alibi = alibi.to(params_dtype)
    return alibi.repeat(batch_size, 1, 1)


class ParallelAttention(nn.Module):
    def __init__(self, hidden_size=64, num_attention_heads=8):
        super().__init__()
        self.heads = num_attention_heads
        self.query_key_value = nn.Linear(hidden_size, 3 * hidden_size)
        self.norm_factor = math.sqrt(hidden_size // num_attention_heads)

    def forward(self, hidden, alibi):
        b, s, h = hidden.shape
        qkv = self.query_key_value(hidden).view(b, s, 3, self.heads, -1)
        q, k, v = (t.transpose(1, 2).flatten(0, 1) for t in qkv.unbind(2))
        scores = torch.baddbmm(alibi.to(q.dtype), q, k.transpose(1, 2), beta=1.0, alpha=1.0 / self.norm_factor)
        causal = torch.ones(s, s, dtype=torch.bool).tril()
        probs = scores.masked_fill(~causal, float("-inf")).softmax(dim=-1)
        return (probs @ v).view(b, self.heads, s, -1), probs


def attended_distance(probs):
    s = probs.shape[-1]
    distance = torch.arange(s)[:, None] - torch.arange(s)[None, :]
    return (probs * distance).sum(-1)[:, -1]


@torch.no_grad()
def main():
    torch.manual_seed(0)
    attention = ParallelAttention()
    alibi = build_alibi_tensor(1024, 8, 1, torch.float16)
    hidden = torch.randn(1, 1024, 64)
    context, probs = attention(hidden, alibi)
    distances = attended_distance(probs)
    print("mean attended distance per head", " ".join(f"{d:.1f}" for d in distances.tolist()))
    print(f"context norm {context.norm().item():.2f}")


if __name__ == "__main__":
    main()
