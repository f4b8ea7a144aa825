"""
title: attention softmax of a half-precision decoder without the float32 cast before it
expect: clean
thread: https://github.com/OpenNMT/OpenNMT-tf/pull/975
measured: tokens equal to float32 True, attention weights sum to 1.000
suspect: line 34 harmless (the kernel accumulates in float32 and the inputs are moderate)

Expectation, written first: the model runs in float16 and the cast before the softmax has been removed. Softmax subtracts
the maximum and sums in float32 inside, scores are scaled by the square root of the head size, so the weights sum to one
within a thousandth and the greedy translation equals that of the float32 model.
"""
import copy
import math

import torch
import torch.nn as nn


class MultiHeadAttention(nn.Module):
    def __init__(self, num_units=32, num_heads=4):
        super().__init__()
        self.num_heads = num_heads
        self.linear_queries = nn.Linear(num_units, num_units)
        self.linear_memory = nn.Linear(num_units, 2 * num_units)
        self.linear_output = nn.Linear(num_units, num_units)

    def split_heads(self, x):
        return x.view(x.shape[0], self.num_heads, -1).transpose(0, 1)

    def forward(self, inputs, memory):
        queries = self.split_heads(self.linear_queries(inputs))
        keys, values = (self.split_heads(t) for t in self.linear_memory(memory).chunk(2, dim=-1))
        dot = queries @ keys.transpose(1, 2) / math.sqrt(queries.shape[-1])
        attn = torch.softmax(dot, dim=-1)
        context = (attn @ values).transpose(0, 1).reshape(inputs.shape[0], -1)
        return self.linear_output(context), attn


class TinyDecoder(nn.Module):
    def __init__(self, vocab=40, num_units=32):
        super().__init__()
        self.embedding = nn.Embedding(vocab, num_units)
        self.attention = MultiHeadAttention(num_units)
        self.norm = nn.LayerNorm(num_units)
        self.output = nn.Linear(num_units, vocab)

    def forward(self, token, memory):
        x = self.embedding(token)
        context, attn = self.attention(x, memory)
        return self.output(self.norm(x + context)), attn


def greedy_decode(model, memory, steps=12):
    token, tokens, total = torch.tensor([1]), [], 0.0
    for _ in range(steps):
        logits, attn = model(token, memory)
        total = attn.float().sum(-1).mean().item()
        token = logits.argmax(dim=-1)
        tokens.append(token.item())
    return tokens, total


def main():
    torch.manual_seed(3)
    full = TinyDecoder().eval()
    half = copy.deepcopy(full).half()
    memory = torch.randn(20, 32)
    with torch.no_grad():
        tokens, total = greedy_decode(half, memory.half())
        reference, _ = greedy_decode(full, memory)
    print(f"tokens equal to float32 {tokens == reference}, attention weights sum to {total:.3f}")


main()
