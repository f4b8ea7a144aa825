"""
title: attention's value goes through a float32 gate, and q and k do not
expect: collision
fix_at: 21

sdnext #3470: "Expected query, key, and value to have the same dtype, but got ... value.dtype: float".
"""
import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.gate = torch.linspace(0.5, 1.0, width)  # BORN

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        v = v * self.gate
        return self.out(F.scaled_dot_product_attention(q, k, v))  # COLLIDES


torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 16), Attention(), nn.Linear(16, 4)).to(torch.bfloat16)
print(net(torch.randn(2, 5, 8).bfloat16()).shape)
