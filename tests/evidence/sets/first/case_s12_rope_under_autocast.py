"""
title: an ambient bfloat16 autocast runs the rotary matmul; image positions from 65536 on collapse
expect: silent:downcast|precision-loss
modes: diagnose

huggingface/diffusers#13922 (Ideogram 4). pos and inv_freq are float32 on purpose, but @ is on autocast's list.
Measured: 64 positions share 1 code; outside autocast 64.
BORN is the product. Change: an elementwise product, or autocast(enabled=False) around the method.
"""
import torch
import torch.nn.functional as F
from torch import nn

IMAGE_OFFSET = 65536


class RoPE(nn.Module):
    def __init__(self, width, theta=1e6):
        super().__init__()
        self.register_buffer("inv_freq", theta ** (-torch.arange(0, width, 2).float() / width), persistent=False)

    def forward(self, ids):
        place = ids.float()[:, :, None]
        angle = place @ self.inv_freq[None, None, :]  # BORN
        angle = torch.cat([angle, angle], -1).float()
        return angle.cos(), angle.sin()


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, cos, sin):
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        q, k = rotate(q, cos, sin).to(v.dtype), rotate(k, cos, sin).to(v.dtype)
        return x + self.out(F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None])[:, 0])


class Transformer(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.rope, self.blocks = RoPE(width), nn.ModuleList(Block(width) for _ in range(2))

    def forward(self, x, ids):
        cos, sin = self.rope(ids)
        for block in self.blocks:
            x = block(x, cos, sin)
        return x, cos


torch.manual_seed(0)
model = Transformer().eval()
ids = torch.arange(64)[None] + IMAGE_OFFSET
with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
    out, cos = model(torch.randn(1, 64, 16), ids)
print("different position codes:", len(cos[0].unique(dim=0)), "of 64;", tuple(out.shape))
