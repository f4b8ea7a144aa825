"""
title: Video DiT rotates bfloat16 queries as complex numbers
expect: collision
thread: https://github.com/pytorch/pytorch/issues/95100

Expectation, written first.  The rotary embedding of this block views pairs of
channels as complex numbers.  There is no complex bfloat16, so the view of the
reshaped query refuses.  The query became bfloat16 because the whole
transformer was cast with .to(torch.bfloat16); the helper forgets the upcast to
float32 that the reference does before the view.  BORN is the cast of the
model; the smallest patch is x.float() in rotate(), the other is to leave the
attention in float32.
fix_at: 29
"""
import torch
from torch import nn

torch.manual_seed(0)


def rope_table(length, dim, theta=10000.0):
    inv = 1.0 / theta ** (torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    angle = torch.outer(torch.arange(length, dtype=torch.float64), inv)
    return torch.polar(torch.ones_like(angle), angle).to(torch.complex64)


def rotate(x, table):
    b, n, h, d = x.shape
    pairs = x.reshape(b, n, h, d // 2, 2)
    rotated = torch.view_as_complex(pairs) * table[None, :n, None, :]  # COLLIDES
    return torch.view_as_real(rotated).flatten(3).type_as(x)


class VideoBlock(nn.Module):
    def __init__(self, dim=48, heads=4):
        super().__init__()
        self.heads, self.head_dim = heads, dim // heads
        self.norm = nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x, table):
        b, n, _ = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, n, 3, self.heads, self.head_dim).unbind(2)
        q, k = rotate(q, table), rotate(k, table)
        y = nn.functional.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))
        return x + self.out(y.transpose(1, 2).reshape(b, n, -1))


class VideoDiT(nn.Module):
    def __init__(self, depth=2, dim=48):
        super().__init__()
        self.patch = nn.Conv3d(4, dim, kernel_size=(1, 2, 2), stride=(1, 2, 2))
        self.blocks = nn.ModuleList(VideoBlock(dim) for _ in range(depth))

    def forward(self, latents, table):
        x = self.patch(latents).flatten(2).transpose(1, 2)
        for block in self.blocks:
            x = block(x, table)
        return x


if __name__ == "__main__":
    model = VideoDiT().to(torch.bfloat16)  # BORN
    latents = torch.randn(1, 4, 3, 8, 8, dtype=next(model.parameters()).dtype)
    with torch.no_grad():
        out = model(latents, rope_table(48, 12))
    print("token norm =", round(out.float().norm().item(), 3))
