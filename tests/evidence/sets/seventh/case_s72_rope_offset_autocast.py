"""
title: Image positions at offset 65536 go through a matmul inside autocast
expect: silent:precision-loss|downcast|round-trip
thread: https://github.com/huggingface/diffusers/issues/13920
measured: distinct rotary rows = 1 of 64, worst cosine error = 1.9375
widened: distinct rotary rows = 64 of 64, worst cosine error = 0.0019

Expectation, written first.  The module casts positions and frequencies to
float32 with care and multiplies them with `@`.  matmul is on autocast's list,
so inside the bf16 autocast the angles are bfloat16: at 65536 its step is 512
and every column of the image gets one and the same angle.  BORN is the matmul
line; as an outer product by `*` (not on the list), or under
autocast(enabled=False), the angles are float32 and the positions are distinct.
"""
import torch
from torch import nn

torch.manual_seed(0)
IMAGE_POSITION_OFFSET = 65536


class MRoPE(nn.Module):
    def __init__(self, dim=32, theta=10000.0):
        super().__init__()
        self.register_buffer("inv_freq", 1.0 / theta ** (torch.arange(0, dim, 2).float() / dim), persistent=False)

    def forward(self, position):
        pos = position.float()[:, None]
        inv = self.inv_freq.float()[None, :]
        freqs = pos @ inv  # BORN
        emb = torch.cat([freqs, freqs], -1)
        return emb.cos(), emb.sin()


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


class Block(nn.Module):
    def __init__(self, dim=64, heads=2):
        super().__init__()
        self.heads = heads
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x, cos, sin):
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k = rotate(q, cos, sin).to(v.dtype), rotate(k, cos, sin).to(v.dtype)
        y = nn.functional.scaled_dot_product_attention(q, k, v)
        return x + self.proj(y.transpose(1, 2).reshape(b, n, d))


def main():
    rope, block = MRoPE(), Block()
    columns = torch.arange(64) + IMAGE_POSITION_OFFSET
    token = torch.randn(1, 1, 64).expand(1, 64, 64)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        cos, sin = rope(columns)
        out = block(token + torch.arange(64)[None, :, None] * 0.0, cos, sin)
    distinct = torch.unique(cos.float(), dim=0).size(0)
    exact = torch.outer(columns.double(), rope.inv_freq.double()).cos()
    error = (cos[:, :16].double() - exact).abs().max().item()
    print("output", tuple(out.shape))
    print(f"distinct rotary rows = {distinct} of 64, worst cosine error = {error:.4f}")


if __name__ == "__main__":
    main()
