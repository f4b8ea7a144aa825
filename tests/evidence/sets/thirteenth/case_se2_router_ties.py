"""
title: a mixture of experts rounds its routing probabilities before it picks the experts
expect: silent:precision-loss|downcast
thread: https://github.com/ViperEkura/AstrAI/pull/57
measured: busiest expert 24.9% of the work, idlest 0.00% (even share 1.56%)
widened: busiest expert 2.4% of the work, idlest 0.64% (even share 1.56%)

Expectation, written first: early in training the 64 probabilities of a token differ by less than a step of bfloat16,
so most are ties, and ties go to the same few experts. The innocent suspect is the dispatch weight, cast to the
activation's bfloat16 after the choice: it scales an output in its third digit.
"""
import torch
import torch.nn.functional as F
from torch import nn


class Router(nn.Module):
    def __init__(self, width, experts, top_k):
        super().__init__()
        self.gate = nn.Linear(width, experts, bias=False)
        nn.init.normal_(self.gate.weight, std=1e-4)
        self.top_k = top_k

    def forward(self, x):
        logits = F.linear(x.float(), self.gate.weight)
        probs = F.softmax(logits, dim=-1).to(x.dtype)  # BORN
        weights, chosen = torch.topk(probs, self.top_k, dim=-1)
        return weights.float() / weights.float().sum(-1, keepdim=True), chosen


class Expert(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        return self.down(F.silu(self.up(x)))


class MoE(nn.Module):
    def __init__(self, width=64, experts=64, top_k=4):
        super().__init__()
        self.router = Router(width, experts, top_k)
        self.experts = nn.ModuleList(Expert(width) for _ in range(experts))
        self.load = torch.zeros(experts, dtype=torch.long)

    def forward(self, x):
        weights, chosen = self.router(x)
        weights = weights.to(torch.bfloat16)
        self.load += torch.bincount(chosen.flatten(), minlength=len(self.experts))
        out = torch.zeros_like(x, dtype=torch.float32)
        for e, expert in enumerate(self.experts):
            token, slot = (chosen == e).nonzero(as_tuple=True)
            if len(token):
                out.index_add_(0, token, expert(x[token].float()) * weights[token, slot, None].float())
        return x + out.to(x.dtype)


class Layers(nn.Module):
    def __init__(self, depth=2):
        super().__init__()
        self.blocks = nn.ModuleList(MoE() for _ in range(depth))

    def forward(self, x):
        for block in self.blocks:
            x = F.layer_norm(block(x).float(), x.shape[-1:]).to(x.dtype)
        return x


@torch.no_grad()
def main():
    torch.manual_seed(29)
    model = Layers()
    for _ in range(4):
        model(torch.randn(2048, 64).bfloat16())
    load = sum(b.load for b in model.blocks).double()
    share = load / load.sum() * 100
    print(f"busiest expert {share.max():.1f}% of the work, idlest {share.min():.2f}% (even share {100 / 64:.2f}%)")


main()
