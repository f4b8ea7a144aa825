"""
title: a norm that squares in float16 returns zeros for the tokens with large activations
expect: silent:overflow
thread: https://github.com/pytorch/pytorch/pull/133085
measured: tokens with an empty output 16.8%, tokens given tag 0 22.4%, norm of the outputs 8.15
widened: tokens with an empty output 0.0%, tokens given tag 0 5.5%, norm of the outputs 9.80

Expectation, written first: a few channels of some tokens are above 256, their squares exceed 65504, the mean is
infinite and its inverse root zero: the token's output vanishes without any NaN. The innocent suspect is the lookup of
class vectors in float16, which only rounds the last digit of the scores.
"""
import torch
from torch import nn


class RMSNorm(nn.Module):
    def __init__(self, width, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, hidden):
        h = hidden.to(torch.float16)  # BORN
        variance = h.pow(2).mean(-1, keepdim=True)
        return self.weight * (h * torch.rsqrt(variance + self.eps)).float()


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = RMSNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width))

    def forward(self, x):
        return x + 0.1 * self.mlp(self.norm(x))


class Embedding(nn.Module):
    """delimiters, one token of six, carry the massive channels known from large models"""

    def __init__(self, vocab, width):
        super().__init__()
        self.table = nn.Parameter(torch.randn(vocab, width))
        massive = torch.zeros(vocab, width)
        massive[::6, 5] = 900.0
        massive[::6, 17] = -700.0
        self.register_buffer("massive", massive)

    def forward(self, ids):
        return 40 * self.table[ids] + self.massive[ids]


class TokenTagger(nn.Module):
    def __init__(self, vocab=300, width=96, tags=12, depth=3):
        super().__init__()
        self.embedding = Embedding(vocab, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.final_norm = RMSNorm(width)
        self.register_buffer("class_vectors", torch.randn(tags, width).half())

    def features(self, ids):
        x = self.embedding(ids)
        for block in self.blocks:
            x = block(x)
        return self.final_norm(x)

    def forward(self, ids):
        return self.features(ids) @ self.class_vectors.float().T


@torch.no_grad()
def main():
    torch.manual_seed(24)
    model = TokenTagger()
    ids = torch.randint(0, 300, (40, 64))
    out = model.features(ids)
    empty = (out.abs().amax(-1) == 0).double().mean().item()
    tags = model(ids).argmax(-1)
    print(f"tokens with an empty output {100 * empty:.1f}%, tokens given tag 0 {100 * (tags == 0).double().mean():.1f}%, norm of the outputs {out.norm(dim=-1).mean():.2f}")


main()
