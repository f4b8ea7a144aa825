"""
title: an RMSNorm squares float16 activations without widening them, so tokens with large activations come out as zero
expect: silent:overflow
modes: diagnose

After ZJU-REAL/EasySteer#21 and unsloth's fp16 Gemma threads ("massive activations"). 300 squared does not fit float16: the mean square
is inf, its rsqrt is 0, and no NaN warns: one token in eight (the first of each text) leaves the norm as zeros
and the first similarity is 0.37 (repaired: 0.49). Right: square x.float().
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(30)


class RmsNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x):
        square = x.pow(2).mean(-1, keepdim=True)  # BORN
        return (x * torch.rsqrt(square + self.eps)).to(x.dtype) * self.weight


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = RmsNorm(dim)
        self.gate = nn.Linear(dim, 2 * dim, bias=False)
        self.up = nn.Linear(dim, 2 * dim, bias=False)
        self.down = nn.Linear(2 * dim, dim, bias=False)

    def forward(self, x):
        h = self.norm(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Encoder(nn.Module):
    BOS = 0

    def __init__(self, vocab=40, dim=32, depth=2):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        with torch.no_grad():
            self.embed.weight[self.BOS, :2] = torch.tensor([700.0, -400.0])
        self.blocks = nn.ModuleList(Block(dim) for _ in range(depth))
        self.norm = RmsNorm(dim)

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.norm(x)


def texts(rows=6, length=8):
    ids = torch.randint(1, 40, (rows, length))
    ids[:, 0] = Encoder.BOS
    return ids


@torch.inference_mode()
def embed(encoder, ids):
    hidden = encoder(ids).float()
    return F.normalize(hidden.mean(dim=1), dim=-1), (hidden.abs().sum(-1) == 0).float().mean().item()


encoder = Encoder().half().eval()
vectors, dead = embed(encoder, texts())
print("tokens that are zero", round(dead, 3), "first similarity", round((vectors[0] @ vectors[1]).item(), 4))
