"""
title: casting the whole model to bfloat16 casts the rotary inv_freq with it, and far positions turn by wrong angles
expect: silent:precision-loss|downcast|round-trip
thread: https://github.com/okoge-kaz/llm-recipes/pull/6
measured: positions from 0: agreement 1.0000 ; positions from 4000: agreement 0.9499 ; positions from 30000: agreement 0.3327
widened: positions from 0: agreement 1.0000 ; positions from 4000: agreement 1.0000 ; positions from 30000: agreement 1.0000
innocent: positions from 0: agreement 1.0000 ; positions from 4000: agreement 0.9499 ; positions from 30000: agreement 0.3327
suspect: 69 fits (positions stay under 32768)

Expectation, written first: model.to(bfloat16) also converts the registered buffer inv_freq; a relative error of a few thousandths times a position of
four thousand and more is several radians, so the rotated keys have little to do with those the checkpoint was trained with. Widening inside forward is too
late. The position ids are int16, but the longest is 30063, under 32767, and they are made float before the product.
"""
import torch
from torch import nn


class RotaryEmbedding(nn.Module):
    def __init__(self, dim, base=10000.0):
        super().__init__()
        inv_freq = 1.0 / (base ** (torch.arange(0, dim, 2).float() / dim))
        self.register_buffer("inv_freq", inv_freq, persistent=False)  # BORN

    def forward(self, position_ids):
        freqs = torch.outer(position_ids.float(), self.inv_freq.float())
        emb = torch.cat((freqs, freqs), dim=-1)
        return emb.cos(), emb.sin()


def rotate_half(x):
    a, b = x.chunk(2, -1)
    return torch.cat((-b, a), -1)


class Attention(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.q_proj = nn.Linear(dim, dim, bias=False)
        self.k_proj = nn.Linear(dim, dim, bias=False)
        self.rotary = RotaryEmbedding(dim)

    def keys(self, x, position_ids):
        cos, sin = self.rotary(position_ids)
        k = self.k_proj(x).float()
        return k * cos + rotate_half(k) * sin


def load_model(mixed_precision=True):
    torch.manual_seed(0)
    model = Attention()
    if mixed_precision:
        model.to(torch.bfloat16)  # BORN
    return model.eval()


def reference_keys(model, x, positions):
    inv = 1.0 / (10000.0 ** (torch.arange(0, 32, 2).double() / 32))
    angle = positions.double()[:, None] * inv
    angle = torch.cat((angle, angle), -1)
    k = model.k_proj(x).double()
    return k * angle.cos() + rotate_half(k) * angle.sin()


@torch.no_grad()
def main():
    model = load_model()
    hidden = torch.randn(64, 32).to(model.k_proj.weight.dtype)
    for start in (0, 4000, 30000):
        position_ids = torch.arange(start, start + 64).to(torch.int16)
        got = model.keys(hidden, position_ids).double()
        want = reference_keys(model, hidden, position_ids)
        cos = torch.cosine_similarity(got, want, dim=-1).mean().item()
        print(f"positions from {start}: agreement {cos:.4f}")


main()
