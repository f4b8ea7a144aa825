"""
title: linear attention biases are multiplied out in bfloat16 and long sequences lose the last tokens
expect: silent:precision-loss|downcast
thread: https://github.com/HabanaAI/vllm-fork/pull/503
measured: first head: weight of the newest token 0.067, mean age of what it reads 7.4 tokens
widened: first head: weight of the newest token 0.226, mean age of what it reads 3.5 tokens

Expectation, written first: the bias is slope times absolute position; past 256 the product has no room for the
neighbours' distance, so a head that should weigh the newest token most shares its weight with several older ones.
The innocent suspect is the value cache in bfloat16: it costs a third digit at most and its widening mends nothing.
"""
import torch
from torch import nn


def alibi_slopes(heads):
    start = 2 ** (-8 / heads)
    return torch.tensor([start ** (i + 1) for i in range(heads)])


def build_alibi_tensor(attention_mask, heads):
    slopes = alibi_slopes(heads)
    positions = (attention_mask.cumsum(-1) - 1) * attention_mask
    return slopes[None, :, None].bfloat16() * positions[:, None, :]  # BORN


class ValueCache:
    def __init__(self, heads, dim, limit):
        self.values = torch.zeros(heads, limit, dim, dtype=torch.bfloat16)
        self.used = 0

    def append(self, v):
        self.values[:, self.used : self.used + v.shape[1]] = v
        self.used += v.shape[1]
        return self.values[:, : self.used]


class DecodeAttention(nn.Module):
    def __init__(self, heads, dim, limit=4096):
        super().__init__()
        self.heads, self.dim = heads, dim
        self.cache = ValueCache(heads, dim, limit)

    def forward(self, query, keys, values, alibi):
        scores = torch.einsum("hd,htd->ht", query, keys) / self.dim**0.5
        weights = (scores + alibi[0].float()).softmax(-1)
        return weights, torch.einsum("ht,htd->hd", weights, self.cache.append(values).float())


@torch.no_grad()
def decode(length, heads=4, dim=16):
    gen = torch.Generator().manual_seed(4)
    mask = torch.ones(1, length, dtype=torch.long)
    attention = DecodeAttention(heads, dim)
    keys = 0.1 * torch.randn(heads, length, dim, generator=gen)
    values = torch.linspace(0, 1, length).expand(heads, length)[..., None].repeat(1, 1, dim)
    query = 0.1 * torch.randn(heads, dim, generator=gen)
    weights, out = attention(query, keys, values, build_alibi_tensor(mask, heads))
    age = (weights[0] * torch.arange(length - 1, -1, -1)).sum().item()
    return weights[0, -1].item(), age


def main():
    newest, age = decode(3000)
    print(f"first head: weight of the newest token {newest:.3f}, mean age of what it reads {age:.1f} tokens")


main()
