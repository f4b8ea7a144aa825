"""
title: the library's own causal mask is float32 unless it is told otherwise
expect: collision

MultiheadAttention that returns its weights adds the mask in a batched product, which wants one dtype. The helper
that makes the mask takes a dtype and was given none.
"""
import functools

import torch
from torch import nn


@functools.lru_cache
def causal(length):
    return nn.Transformer.generate_square_subsequent_mask(length)  # BORN


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.norm = nn.LayerNorm(width)
        self.seen = None

    def forward(self, x):
        mixed, self.seen = self.attention(  # COLLIDES
            query=x,
            key=x,
            value=x,
            attn_mask=causal(x.shape[1]),
            average_attn_weights=False,
        )
        return self.norm(x + mixed)


torch.manual_seed(0)
layers = nn.Sequential(*(Layer(8, 2) for _ in range(2))).to(torch.bfloat16)
layers(torch.randn(2, 5, 8).to(torch.bfloat16))
print([layer.seen.shape for layer in layers])
