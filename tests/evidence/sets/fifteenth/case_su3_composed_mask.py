"""
title: causal, padding and window masks in half precision are composed before the lowest number is filled in
expect: clean
thread: https://github.com/NVIDIA-NeMo/Automodel/pull/2658
measured: norms [1.982, 3.274, 3.885, 7.864] finite True
float64: norms [1.982, 3.274, 3.885, 7.864] finite True (mask and scores in float64)

Expectation, written first: the masks are joined as booleans and the lowest float16 appears once per masked cell, so
no sum of two lowest numbers overflows; scores are small, the softmax is float32 and every row keeps its own position.
"""
import math

import torch
from torch import nn

NARROW, REAL = torch.float16, torch.float32


def causal(length, window):
    at = torch.arange(length)
    ahead = at[None] > at[:, None]
    behind = at[:, None] - at[None] >= window
    return ahead | behind


def additive_mask(padding, window, dtype):
    length = padding.size(1)
    blocked = causal(length, window)[None] | padding[:, None, :]
    blocked = blocked & ~torch.eye(length, dtype=torch.bool)
    zero, low = torch.zeros((), dtype=dtype), torch.full((), torch.finfo(dtype).min, dtype=dtype)
    return torch.where(blocked, low, zero)[:, None]


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, mask):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        scores = (q @ k.mT / math.sqrt(q.size(-1))).to(mask.dtype)
        weights = (scores.to(REAL) + mask.to(REAL)).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))


class Encoder(nn.Module):
    def __init__(self, vocab=64, width=32, layers=3, window=6):
        super().__init__()
        self.window, self.table = window, nn.Embedding(vocab, width)
        self.layers = nn.ModuleList(Attention(width, 4) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers))

    def forward(self, ids, padding):
        mask = additive_mask(padding, self.window, NARROW)
        x = self.table(ids)
        for norm, layer in zip(self.norms, self.layers):
            x = x + layer(norm(x), mask)
        return x.masked_fill(padding[..., None], 0.0)


def ragged(lengths, gen):
    longest = max(lengths)
    ids = torch.randint(1, 64, (len(lengths), longest), generator=gen)
    padding = torch.arange(longest)[None] >= torch.tensor(lengths)[:, None]
    return ids.masked_fill(padding, 0), padding


if __name__ == "__main__":
    torch.manual_seed(7)
    model = Encoder().eval().to(REAL)
    ids, padding = ragged([14, 9, 4, 1], torch.Generator().manual_seed(2))
    with torch.no_grad():
        out = model(ids, padding)
    pooled = out.sum(1) / (~padding).sum(1, keepdim=True)
    print("norms", [round(n, 3) for n in pooled.norm(dim=-1).tolist()], "finite", bool(out.isfinite().all()))
