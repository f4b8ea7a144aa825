"""
title: a causal plane and a padding plane, each finfo.min, are added: -inf, and a chunk of keys without a visible one becomes NaN
expect: silent:overflow
modes: diagnose

NVIDIA-NeMo/Automodel#2658, transformers#17306. Attention over chunks of keys: a chunk that both planes mask holds -inf only, its softmax
is NaN, and NaN * 0 spoils the row.
Measured: 192 of 384 outputs are NaN; 0 when the sum stays finite.
BORN is the sum of the planes. Change: one torch.where / masked_fill over the joined boolean mask (or clamp to finfo.min).
"""
import torch
from torch import nn


def causal_plane(length, dtype):
    hidden = torch.ones(length, length, dtype=torch.bool).triu(1)
    return torch.zeros(length, length, dtype=dtype).masked_fill(hidden, torch.finfo(dtype).min)[None, None]


def padding_plane(keep, dtype):
    return torch.zeros(keep.shape, dtype=dtype).masked_fill(~keep, torch.finfo(dtype).min)[:, None, None, :]


def build_mask(keep, dtype):
    return causal_plane(keep.shape[1], dtype) + padding_plane(keep, dtype)  # BORN


def chunked_attention(q, k, v, mask, size=4):
    """Each chunk of keys by itself, joined by their log-sum-exp, as with context parallelism."""
    outs, sums = [], []
    for k_part, v_part, m_part in zip(k.split(size, -2), v.split(size, -2), mask.split(size, -1)):
        scores = (q @ k_part.transpose(-1, -2)).float() * q.shape[-1] ** -0.5 + m_part.float()
        outs.append(scores.softmax(-1) @ v_part.float())
        sums.append(scores.logsumexp(-1, keepdim=True))
    share = torch.cat(sums, -1).softmax(-1)
    return sum(out * share[..., i:i + 1] for i, out in enumerate(outs)).to(q.dtype)


class Attention(nn.Module):
    def __init__(self, width=16, heads=2):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, mask):
        b, n, d = x.shape
        q, k, v = (t.view(b, n, self.heads, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        mixed = chunked_attention(q, k, v, mask)
        return x + self.out(mixed.transpose(1, 2).reshape(b, n, d))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.layers = nn.Embedding(40, 16), nn.ModuleList(Attention() for _ in range(2))

    def forward(self, tokens, keep):
        x = self.embed(tokens)
        mask = build_mask(keep, x.dtype)
        for layer in self.layers:
            x = layer(x, mask)
        return x


torch.manual_seed(0)
model = Decoder().bfloat16().eval()
tokens = torch.randint(0, 40, (2, 12))
keep = torch.ones(2, 12, dtype=torch.bool)
keep[1, 8:] = False
with torch.no_grad():
    out = model(tokens, keep)
print("NaN outputs:", int(out.isnan().sum()), "of", out.numel())
