"""
title: router probabilities computed in float32 and brought back before they mix bfloat16 experts
expect: clean

A float32 island that is left again on the line that enters it.
"""
import torch
from torch import nn


class Router(nn.Module):
    def __init__(self, width, experts, keep):
        super().__init__()
        self.keep = keep
        self.score = nn.Linear(width, experts, bias=False)

    def forward(self, tokens):
        share = self.score(tokens).softmax(dim=-1, dtype=torch.float32).to(tokens.dtype)
        floor = share.topk(self.keep, dim=-1).values[..., -1:]
        share = share.masked_fill(share < floor, 0.0)
        return share / share.sum(dim=-1, keepdim=True)


def combine(share, outputs):
    return torch.einsum("bse,ebsd->bsd", share, outputs)


class Mixture(nn.Module):
    def __init__(self, width, experts=4, keep=2):
        super().__init__()
        self.router = Router(width, experts, keep)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width)) for _ in range(experts)
        )

    def forward(self, tokens):
        outputs = torch.stack([expert(tokens) for expert in self.experts])
        return tokens + combine(self.router(tokens), outputs)


torch.manual_seed(0)
mixture = Mixture(16).to(torch.bfloat16)
tokens = torch.randn(2, 7, 16, dtype=torch.bfloat16)
loss = mixture(tokens).float().pow(2).mean()
loss.backward()
print(loss.item())
