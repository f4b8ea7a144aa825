"""
title: half decoder with an RMSNorm that squares in the activations' dtype
expect: silent:overflow
thread: https://github.com/pytorch/pytorch/pull/133085
measured: same answer as in double: 0.0 %, distinct answers 1
widened: same answer as in double: 98.4 %, distinct answers 49

Expectation, written first: a residual stream with entries of a few hundred squares to
inf, rsqrt gives zero, and every normalised token is zero; the decoder answers the same
token everywhere. Squaring in float32 repairs it.
"""
import torch
from torch import nn


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x):
        variance = x.pow(2).mean(-1, keepdim=True)  # BORN
        return self.weight * (x * torch.rsqrt(variance + self.eps)).to(self.weight.dtype)


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = RMSNorm(dim)
        self.gate = nn.Linear(dim, 2 * dim, bias=False)
        self.down = nn.Linear(2 * dim, dim, bias=False)

    def forward(self, x):
        return x + self.down(nn.functional.silu(self.gate(self.norm(x))))


class Decoder(nn.Module):
    def __init__(self, vocab=96, dim=64, depth=3, outlier=600.0):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList(Block(dim) for _ in range(depth))
        self.final = RMSNorm(dim)
        self.head = nn.Linear(dim, vocab, bias=False)
        with torch.no_grad():
            self.embed.weight.mul_(40)
            self.embed.weight[:, 5] = outlier
            self.head.weight[:, 5] = 0

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(self.final(x))


def main():
    torch.manual_seed(0)
    model = Decoder()
    ids = torch.randint(0, 96, (4, 32))
    with torch.no_grad():
        want = model.double()(ids).argmax(-1)
        model = model.half()  # BORN
        got = model(ids).argmax(-1)
    agree = (got == want).double().mean().item()
    print(f"same answer as in double: {100 * agree:.1f} %, distinct answers {got.unique().numel()}")


main()
