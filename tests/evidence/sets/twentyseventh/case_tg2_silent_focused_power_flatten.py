"""
title: focused linear attention is NaN from the start in half precision
expect: silent:overflow
thread: https://github.com/LeapLabTHU/FLatten-Transformer/issues/15
measured: tokens with NaN 1.00 mean absolute output nan
widened: tokens with NaN 0.00 mean absolute output 3.95; innocent: tokens with NaN 1.00 mean absolute output nan
suspect: 26 exact (multiples of 1/64)

Expectation, written first: the focusing function raises q and k to the third power before it restores their norm. A
feature of 45 becomes 91000, beyond float16, and inf / inf is NaN for the whole token. Remedy: take the power in float32
(or normalise first). The positional encoding in half is exact.
"""
import torch
import torch.nn as nn


class FocusedLinearAttention(nn.Module):
    def __init__(self, dim, num_patches, num_heads=4, focusing_factor=3):
        super().__init__()
        self.num_heads = num_heads
        self.focusing_factor = focusing_factor
        self.qkv = nn.Linear(dim, dim * 3)
        self.proj = nn.Linear(dim, dim)
        self.scale = nn.Parameter(torch.zeros(1, 1, dim))
        table = torch.randint(-8, 9, (1, num_patches, dim)) / 64
        self.positional_encoding = nn.Parameter(table.half(), requires_grad=False)

    def focus(self, x):
        norm = x.norm(dim=-1, keepdim=True)
        x = x ** self.focusing_factor  # BORN
        return x / x.norm(dim=-1, keepdim=True) * norm  # BORN

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        k = k + self.positional_encoding.to(k.dtype)
        q = torch.relu(q) + 1e-4
        k = torch.relu(k) + 1e-4
        scale = nn.functional.softplus(self.scale)
        dtype = v.dtype
        q = self.focus(q / scale).to(dtype)
        k = self.focus(k / scale).to(dtype)
        q, k, v = (t.reshape(b, n, self.num_heads, -1).transpose(1, 2) for t in (q, k, v))
        z = 1 / (q @ k.mean(dim=-2, keepdim=True).transpose(-2, -1) + 1e-4)
        kv = (k.transpose(-2, -1) * (n ** -0.5)) @ (v * (n ** -0.5))
        out = (q @ kv * z).transpose(1, 2).reshape(b, n, c)
        return self.proj(out)


class Stage(nn.Module):
    def __init__(self, dim, num_patches):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.attn = FocusedLinearAttention(dim, num_patches)

    def forward(self, x):
        return x + self.attn(self.norm(x))


@torch.no_grad()
def main():
    torch.manual_seed(15)
    stage = Stage(32, 49)
    stage.attn.qkv.weight.mul_(40.0)
    x = torch.randn(2, 49, 32)
    out = stage.half()(x.half())  # BORN
    bad = out.isnan().any(-1).float().mean().item()
    print(f"tokens with NaN {bad:.2f} mean absolute output {out.float().abs().mean().item():.2f}")


main()
