"""
title: a hand-written RMSNorm squares float16 activations above 256
expect: silent:overflow
modes: diagnose

After xlite-dev/LeetCUDA#335 and nntrainer/nntrainer#3935: x*x is inf, rsqrt(inf) is 0, the token vanishes.
Damage: 6 of 24 tokens come out as zeros (output norm 0 instead of 4.0). Right change: x.float() in the norm.
"""
import torch
import torch.nn as nn


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x):
        ms = x.pow(2).mean(-1, keepdim=True)  # BORN
        return x * torch.rsqrt(ms + self.eps) * self.weight


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
    model.embed.weight[:8, 3] = 900.0  # massive activations of a trained model's first tokens
model = model.half().eval()
with torch.no_grad():
    logits, h = model(torch.arange(2, 26)[None])
norms = h.float().norm(dim=-1)[0]
print("dead tokens", int((norms == 0).sum()), "of", norms.numel(), "mean norm", round(norms.mean().item(), 3))
