"""
title: ALiBi bias in double beside bfloat16 queries in scaled_dot_product_attention
expect: collision
thread: https://github.com/mahmoodlab/TITAN/issues/11
fix_at: (none beside the marked)

Expectation, written first: The slide encoder is cast to bfloat16, the 2D ALiBi bias is built for each slide from the
patch coordinates. Its slopes come from NumPy in float64, so the bias is double and goes to scaled_dot_product_attention
as it is; the mask must be bool, float or of the query's dtype and torch raises.
"""
import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def get_slopes(n_heads):
    start = 2 ** (-2 ** -(math.log2(n_heads) - 3))
    return np.array([start * start ** i for i in range(n_heads)])  # BORN


def get_alibi(coords, n_heads, patch_size):
    grid = torch.div(coords - coords.amin(dim=1, keepdim=True), patch_size, rounding_mode="floor").float()
    dist = torch.cdist(grid, grid)
    slopes = torch.from_numpy(get_slopes(n_heads)).view(1, n_heads, 1, 1)  # BORN
    bias = -dist.unsqueeze(1) * slopes  # BORN
    return F.pad(bias, (1, 0, 1, 0))  # BORN


class Attention(nn.Module):
    def __init__(self, dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(dim, dim * 3)
        self.proj = nn.Linear(dim, dim)
        self.attn_drop_prob = 0.0

    def forward(self, x, attn_bias):
        B, N, C = x.shape
        qkv = self.qkv(x).reshape(B, N, 3, self.num_heads, C // self.num_heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        x = F.scaled_dot_product_attention(q, k, v, attn_mask=attn_bias, dropout_p=self.attn_drop_prob)  # BORN COLLIDES
        return self.proj(x.transpose(1, 2).reshape(B, N, C))


class Block(nn.Module):
    def __init__(self, dim, num_heads):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attn = Attention(dim, num_heads)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x, attn_bias):
        x = x + self.attn(self.norm1(x), attn_bias)
        return x + self.mlp(self.norm2(x))


class VisionTransformer(nn.Module):
    def __init__(self, in_dim=24, dim=32, depth=2, num_heads=4):
        super().__init__()
        self.num_heads = num_heads
        self.patch_embed = nn.Linear(in_dim, dim)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.blocks = nn.ModuleList(Block(dim, num_heads) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)

    def forward(self, features, coords, patch_size_lv0):
        x = self.patch_embed(features)
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], dim=1)
        attn_bias = get_alibi(coords, self.num_heads, patch_size_lv0)  # BORN
        for blk in self.blocks:
            x = blk(x, attn_bias)
        return self.norm(x)[:, 0]


@torch.inference_mode()
def encode_slides():
    torch.manual_seed(11)
    model = VisionTransformer().to(torch.bfloat16).eval()
    for slide_id in ("TCGA-UF-A71A", "TCGA-2Y-A9GS"):
        features = torch.randn(1, 20, 24).to(torch.bfloat16)
        coords = torch.randint(0, 12, (1, 20, 2)) * 1024 + 317
        slide_embedding = model(features, coords, 1024)
        print(slide_id, tuple(slide_embedding.shape), round(slide_embedding.float().std().item(), 2))


if __name__ == "__main__":
    encode_slides()
