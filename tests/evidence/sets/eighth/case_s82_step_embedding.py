"""
title: the time embedding of a denoiser with a thousand steps
expect: silent:precision-loss|downcast
thread: https://github.com/apache/tvm/pull/15808
measured: distinct embeddings 507 of 1000, steps with the output of the one before 493
widened: distinct embeddings 1000 of 1000, steps with the output of the one before 0

Expectation, written first: the step numbers are cast to bf16 before they meet the
frequencies; above 256 several steps become one number, so the denoiser cannot tell them apart.
BORN is that cast; float32 gives a thousand different embeddings.
"""
import math

import torch
from torch import nn


class StepEmbedding(nn.Module):
    def __init__(self, dim, max_period=10000):
        super().__init__()
        half = dim // 2
        freqs = torch.exp(-math.log(max_period) * torch.arange(half) / half)
        self.register_buffer("freqs", freqs)

    def forward(self, steps):
        t = steps.to(torch.bfloat16)  # BORN
        args = t[:, None] * self.freqs[None]
        return torch.cat([torch.cos(args), torch.sin(args)], dim=-1)


class Denoiser(nn.Module):
    def __init__(self, dim=32, width=48):
        super().__init__()
        self.embed = StepEmbedding(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, width), nn.SiLU(), nn.Linear(width, dim))

    def forward(self, x, steps):
        return self.mlp(self.embed(steps)) + 0.1 * x


@torch.no_grad()
def audit(model, count):
    steps = torch.arange(count)
    emb = model.embed(steps)
    distinct = len(torch.unique(emb, dim=0))
    out = model(torch.zeros(count, emb.shape[1]), steps)
    frozen = int((out[1:] == out[:-1]).all(1).sum())
    return distinct, frozen


def main():
    torch.manual_seed(0)
    distinct, frozen = audit(Denoiser().eval(), 1000)
    print("distinct embeddings %d of 1000, steps with the output of the one before %d" % (distinct, frozen))


if __name__ == "__main__":
    main()
