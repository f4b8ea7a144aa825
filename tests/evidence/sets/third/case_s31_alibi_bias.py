"""
title: an ALiBi bias whose slopes come from numpy in float64
expect: collision
fix_at: 32

After mahmoodlab/TITAN#11 (Expected attn_mask dtype to be bool or to match query dtype).
Right change: cast the bias to q.dtype where it is used, or build it in float32 and register it as a buffer.
"""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def slopes(heads):
    return torch.from_numpy(2.0 ** (-8.0 * np.arange(1, heads + 1) / heads))  # BORN


class AlibiAttention(nn.Module):
    def __init__(self, dim, heads, max_len):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        pos = torch.arange(max_len)
        dist = (pos[None, :] - pos[:, None]).abs()
        self.bias = -dist[None] * slopes(heads)[:, None, None]  # BORN

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        bias = self.bias[:, :n, :n].unsqueeze(0).expand(b, -1, -1, -1)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)  # COLLIDES
        return self.out(y.transpose(1, 2).reshape(b, n, d))


class SlideEncoder(nn.Module):
    def __init__(self, dim=16, depth=2):
        super().__init__()
        self.embed = nn.Linear(24, dim)
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(depth))
        self.blocks = nn.ModuleList(AlibiAttention(dim, 4, 32) for _ in range(depth))

    def forward(self, patches):
        h = self.embed(patches)
        for norm, block in zip(self.norms, self.blocks):
            h = h + block(norm(h))
        return h.mean(1)


torch.manual_seed(0)
encoder = SlideEncoder().eval()
with torch.no_grad():
    ref = encoder(torch.randn(2, 20, 24))
    fast = encoder.to(torch.bfloat16)
    feats = [fast(torch.randn(2, n, 24, dtype=torch.bfloat16)) for n in (8, 16)]
print("features", ref.shape, torch.cat(feats).float().norm().item())
