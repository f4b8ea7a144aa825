"""
title: a float16 model with massive activations whose RMSNorm computes in float32
expect: clean

Looks like rmsnorm_square; the squares are taken in float32 and only the normalised value is float16.
"""
import torch
import torch.nn as nn


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)
        return y.to(x.dtype) * self.weight


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = RMSNorm(dim)
        self.up = nn.Linear(dim, 2 * dim, bias=False)
        self.down = nn.Linear(2 * dim, dim, bias=False)

    def forward(self, x):
        return x + self.down(nn.functional.silu(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self, vocab=32, dim=16):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList(Block(dim) for _ in range(2))
        self.final = RMSNorm(dim)
        self.head = nn.Linear(dim, vocab, bias=False)

    def forward(self, ids):
        h = self.embed(ids)
        for b in self.blocks:
            h = b(h)
        h = self.final(h)
        return self.head(h), h


torch.manual_seed(0)
model = Model()
with torch.no_grad():
    model.embed.weight[:8, 3] = 900.0
model = model.half().eval()
with torch.no_grad():
    logits, h = model(torch.arange(2, 26)[None])
norms = h.float().norm(dim=-1)[0]
print("dead tokens", int((norms == 0).sum()), "of", norms.numel(), "mean norm", round(norms.mean().item(), 3))
