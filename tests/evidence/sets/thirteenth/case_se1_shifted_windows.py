"""
title: a Swin backbone with shifted windows is cast to bfloat16 for inference
expect: collision
thread: https://github.com/huggingface/transformers/issues/47743
fix_at: 40, 41, 42, 43, 57, 63, 64, 69, 70, 95

Expectation, written first: the mask of the shifted windows is built in float32; added to the bfloat16 scores it makes
them float32, and the weights that come out of the softmax no longer fit the bfloat16 values.
"""
import torch
import torch.nn.functional as F
from torch import nn


def window_partition(x, size):
    b, h, w, c = x.shape
    x = x.view(b, h // size, size, w // size, size, c)
    return x.transpose(2, 3).reshape(-1, size * size, c)


def window_reverse(windows, size, h, w):
    x = windows.view(-1, h // size, w // size, size, size, windows.shape[-1])
    return x.transpose(2, 3).reshape(-1, h, w, windows.shape[-1])


class WindowAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.proj = (nn.Linear(dim, dim) for _ in range(4))

    def split(self, x):
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, x, mask):
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        scores = torch.matmul(q, k.transpose(-1, -2)) / q.shape[-1] ** 0.5
        if mask is not None:
            n = mask.shape[0]
            scores = scores.unflatten(0, (-1, n)) + mask[None, :, None]
            scores = scores.flatten(0, 1)
        probs = F.softmax(scores, dim=-1)
        return self.proj(torch.matmul(probs, v).transpose(1, 2).flatten(2))  # COLLIDES


class SwinLayer(nn.Module):
    def __init__(self, dim, heads, window, shift):
        super().__init__()
        self.window, self.shift = window, shift
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention = WindowAttention(dim, heads)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def get_attn_mask(self, h, w):
        if self.shift == 0:
            return None
        img_mask = torch.zeros((1, h, w, 1))  # BORN
        slices = (slice(0, -self.window), slice(-self.window, -self.shift), slice(-self.shift, None))
        for i, rows in enumerate(slices):
            for j, cols in enumerate(slices):
                img_mask[:, rows, cols] = 3 * i + j
        windows = window_partition(img_mask, self.window).squeeze(-1)
        mask = windows.unsqueeze(1) - windows.unsqueeze(2)
        return mask.masked_fill(mask != 0, -100.0).masked_fill(mask == 0, 0.0)

    def forward(self, x):
        b, h, w, c = x.shape
        shifted = self.norm1(x).roll((-self.shift, -self.shift), (1, 2))
        mask = self.get_attn_mask(h, w)
        out = self.attention(window_partition(shifted, self.window), mask)
        x = x + window_reverse(out, self.window, h, w).roll((self.shift, self.shift), (1, 2))
        return x + self.mlp(self.norm2(x))


class Swin(nn.Module):
    def __init__(self, dim=24, heads=3, window=4, depth=4):
        super().__init__()
        self.patch = nn.Conv2d(3, dim, 2, stride=2)
        self.layers = nn.ModuleList(SwinLayer(dim, heads, window, (i % 2) * window // 2) for i in range(depth))
        self.norm = nn.LayerNorm(dim)

    def forward(self, pixels):
        x = self.patch(pixels).permute(0, 2, 3, 1)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


def main():
    torch.manual_seed(0)
    backbone = Swin().eval()
    pixels = torch.randn(1, 3, 24, 24)
    with torch.no_grad():
        exact = backbone(pixels)
        backbone.to(torch.bfloat16)
        low = backbone(pixels.to(torch.bfloat16)).float()
    print(f"difference {(low - exact).abs().mean().item():.4f}")


main()
