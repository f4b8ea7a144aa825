"""
title: gates computed in float32 and not brought back widen what is written into a bfloat16 result
expect: collision
fix_at: 27

The result has the dtype of the tokens, as the experts have. What is written into it was multiplied by a gate that
stayed float32.
"""
import torch
from torch import nn


def result_buffer(tokens, width):
    count = tokens.shape[0]
    return torch.zeros(count, width, dtype=tokens.dtype)


class SparseLayer(nn.Module):
    def __init__(self, width, experts):
        super().__init__()
        self.gate = nn.Linear(width, experts)
        self.experts = nn.ModuleList(nn.Linear(width, width) for _ in range(experts))

    def forward(self, x):
        tokens = x.flatten(0, 1)
        share, choice = self.gate(tokens).float().softmax(-1).max(-1)  # BORN
        share = share.unsqueeze(-1)
        result = result_buffer(tokens, tokens.shape[1])
        for index, expert in enumerate(self.experts):
            rows = (choice == index).nonzero().squeeze(1)
            if len(rows):
                result[rows] = expert(tokens[rows]) * share[rows]  # COLLIDES
        return x + result.view_as(x)


torch.manual_seed(0)
network = nn.Sequential(SparseLayer(12, 3), nn.GELU(), SparseLayer(12, 3)).to(torch.bfloat16)
with torch.no_grad():
    print(network(torch.randn(2, 5, 12).bfloat16()).dtype)
