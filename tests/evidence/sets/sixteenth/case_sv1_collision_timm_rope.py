"""
title: rotary tables are float32 by default, queries and keys follow them and the values do not
expect: collision
thread: https://github.com/huggingface/pytorch-image-models/pull/2794
fix_at: 16, 20, 29, 38, 51, 52, 67

Expectation, written first: the tables of sin and cos are built in float32 by a default argument that nobody fills and
the rotation promotes a bfloat16 query to float32; attention then sees q and k in float32 and v in bfloat16. Mend: in
the rotation (cast the tables to x, as the pull request does), in get_embed, or at the default.
"""
import torch
import torch.nn.functional as F
from torch import nn


def build_rotary_pos_embed(shape, dim, temperature=100.0, dtype=torch.float32):  # BORN
    bands = temperature ** -(torch.arange(dim // 4, dtype=torch.float32) / (dim // 4))
    grid = torch.stack(torch.meshgrid(*[torch.arange(s, dtype=torch.float32) for s in shape], indexing="ij"), dim=-1)
    pos = (grid.reshape(-1, 2, 1) * bands).flatten(1)
    return pos.sin().repeat_interleave(2, -1).to(dtype), pos.cos().repeat_interleave(2, -1).to(dtype)  # BORN


def rot(x):
    return torch.stack([-x[..., 1::2], x[..., ::2]], -1).reshape(x.shape)


def apply_rot_embed(x, emb):
    sin, cos = emb
    return x * cos + rot(x) * sin  # BORN


class RotaryEmbedding(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def get_embed(self, shape):
        return build_rotary_pos_embed(shape, self.dim)  # BORN


class RopeAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x, rope):
        b, n, c = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k = apply_rot_embed(q, rope), apply_rot_embed(k, rope)
        x = F.scaled_dot_product_attention(q, k, v)  # COLLIDES
        return self.proj(x.transpose(1, 2).reshape(b, n, c))


class Eva(nn.Module):
    def __init__(self, width=32, heads=2, depth=2, classes=7):
        super().__init__()
        self.patch = nn.Conv2d(3, width, 4, 4)
        self.rope = RotaryEmbedding(width // heads)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))
        self.blocks = nn.ModuleList(RopeAttention(width, heads) for _ in range(depth))
        self.head = nn.Linear(width, classes)

    def forward(self, images):
        x = self.patch(images)
        rope = self.rope.get_embed(x.shape[-2:])
        x = x.flatten(2).transpose(1, 2)
        for norm, block in zip(self.norms, self.blocks):
            x = x + block(norm(x), rope)
        return self.head(x.mean(1))


if __name__ == "__main__":
    torch.manual_seed(0)
    model = Eva().to(torch.bfloat16).eval()
    with torch.no_grad():
        logits = model(torch.randn(2, 3, 24, 24).to(torch.bfloat16))
    print(tuple(logits.shape), logits.float().softmax(-1).sum(-1).round().tolist())
