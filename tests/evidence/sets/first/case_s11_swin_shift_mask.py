"""
title: a shifted-window mask made for the size at hand is float32 and widens the attention
expect: collision
fix_at: 33, 53

After huggingface/transformers#17481 and #47743 (modeling_swin: img_mask is created as float32). Made in each forward, so that no .to()
reaches it; added to the scores it makes the probabilities float32, and the product with the bfloat16 values refuses.
Right change: torch.zeros(..., dtype=) for the mask.
"""
import torch
from torch import nn


def windows(x, size):
    b, h, w, c = x.shape
    return x.view(b, h // size, size, w // size, size, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, size * size, c)


def unwindow(x, size, h, w):
    return x.view(-1, h // size, w // size, size, size, x.shape[-1]).permute(0, 1, 3, 2, 4, 5).reshape(-1, h, w, x.shape[-1])


class WindowAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.scale = heads, (width // heads) ** -0.5
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, mask=None):
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        scores = (q * self.scale) @ k.transpose(-2, -1)
        if mask is not None:
            scores = scores + mask[:, None]
        return self.proj((scores.softmax(-1) @ v).transpose(1, 2).flatten(-2))  # COLLIDES


class SwinBlock(nn.Module):
    def __init__(self, width=16, heads=2, size=4, shift=0):
        super().__init__()
        self.size, self.shift = size, shift
        self.norm, self.attention = nn.LayerNorm(width), WindowAttention(width, heads)

    def mask(self, h, w):
        if not self.shift:
            return None
        regions, count = torch.zeros(1, h, w, 1), 0  # BORN
        cuts = (slice(0, -self.size), slice(-self.size, -self.shift), slice(-self.shift, None))
        for rows in cuts:
            for columns in cuts:
                regions[:, rows, columns], count = count, count + 1
        parts = windows(regions, self.size).squeeze(-1)
        apart = parts[:, None] - parts[:, :, None]
        return apart.masked_fill(apart != 0, -100.0)

    def forward(self, x):
        h, w = x.shape[1:3]
        shifted = x.roll((-self.shift, -self.shift), (1, 2))
        out = self.attention(windows(self.norm(shifted), self.size), self.mask(h, w))
        return x + unwindow(out, self.size, h, w).roll((self.shift, self.shift), (1, 2))


torch.manual_seed(0)
net = nn.Sequential(SwinBlock(), SwinBlock(shift=2)).to(torch.bfloat16).eval()
with torch.no_grad():
    print(net(torch.randn(1, 8, 8, 16).to(torch.bfloat16)).dtype)
