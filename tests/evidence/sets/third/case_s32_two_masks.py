"""
title: causal and padding masks of finfo.min each, added in bfloat16
expect: silent:overflow
modes: diagnose

After NVIDIA-NeMo/Automodel#2658 (masks that sum to -inf): left padding makes whole rows -inf and the softmax NaN.
Damage: the padded query rows are NaN and reach the pooled output (1 of 2 rows NaN). Right change: minimum / where / boolean
masks instead of the sum.
"""
import torch
import torch.nn as nn


def causal_mask(n, dtype):
    return torch.full((n, n), torch.finfo(dtype).min, dtype=dtype).triu(1)


def padding_mask(keep, dtype):
    pad = (1.0 - keep.to(dtype)) * torch.finfo(dtype).min
    return pad[:, None, None, :] + pad[:, None, :, None]  # BORN


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x, mask):
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        score = q @ k.transpose(-1, -2) / (d // self.heads) ** 0.5 + mask
        return self.out((score.softmax(-1) @ v).transpose(1, 2).reshape(b, n, d))


class Encoder(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.embed = nn.Embedding(30, dim)
        self.norm = nn.LayerNorm(dim)
        self.attn = Attention(dim, 2)

    def forward(self, ids, keep):
        h = self.embed(ids)
        n = ids.shape[1]
        mask = causal_mask(n, h.dtype) + padding_mask(keep, h.dtype)  # BORN
        h = h + self.attn(self.norm(h), mask)
        return (h * keep.unsqueeze(-1).to(h.dtype)).sum(1) / keep.sum(1, keepdim=True)


torch.manual_seed(0)
encoder = Encoder().to(torch.bfloat16).eval()
ids = torch.randint(1, 30, (2, 8))
keep = torch.ones(2, 8, dtype=torch.long)
keep[1, :4] = 0
with torch.no_grad():
    pooled = encoder(ids, keep)
print("pooled rows with NaN", int(pooled.isnan().any(-1).sum()), "of 2")
