"""
title: router probabilities go back to the activations' bfloat16 before topk; near ties choose other experts
expect: silent:downcast|precision-loss
modes: diagnose

ViperEkura/AstrAI#57 (also sglang#33764). The softmax is computed in float32, then rounded to 8 bits: neighbours of 64 experts tie.
Measured: 59 of 512 tokens get other experts; none when the cast is after the topk.
BORN is the cast after the softmax; it belongs after the topk, on the selected weights only.
"""
import torch
import torch.nn.functional as F
from torch import nn


class Expert(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc = nn.Linear(width, width)

    def forward(self, x):
        return F.silu(self.fc(x))


class MoE(nn.Module):
    def __init__(self, width, experts, chosen):
        super().__init__()
        self.gate = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(Expert(width) for _ in range(experts))
        self.chosen = chosen

    def route(self, x):
        scores = F.linear(x.float(), self.gate.weight.float()).softmax(-1)
        return scores.to(x.dtype)  # BORN

    def forward(self, x):
        weights, picks = self.route(x).topk(self.chosen, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        out = torch.zeros_like(x)
        for index, expert in enumerate(self.experts):
            rows, slot = (picks == index).nonzero(as_tuple=True)
            if rows.numel():
                out.index_add_(0, rows, expert(x[rows]) * weights[rows, slot].unsqueeze(-1))
        return x + out


torch.manual_seed(0)
model = MoE(32, 64, 4).bfloat16().eval()
with torch.no_grad():
    model.gate.weight.mul_(0.2)
    tokens = torch.randn(512, 32).bfloat16()
    out = model(tokens)
    exact = F.linear(tokens.float(), model.gate.weight.float()).topk(4, -1).indices.sort(-1).values
    used = model.route(tokens).topk(4, -1).indices.sort(-1).values
print("tokens whose experts changed:", int((exact != used).any(-1).sum()), "of", len(tokens), tuple(out.shape))
