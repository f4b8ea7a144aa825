"""
title: a router that chooses in float32 and casts only the chosen weights; a balancing bias kept in float32 by hand
expect: clean

Looks like router_cast_before_topk and like a bias that loses its updates; the float32 island is deliberate (AstrAI#57's repair).
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
        self.register_buffer("balance", torch.zeros(experts))
        self.chosen = chosen

    def route(self, x):
        scores = F.linear(x.float(), self.gate.weight.float()).sigmoid()
        picks = (scores + self.balance).topk(self.chosen, -1).indices
        weights = scores.gather(-1, picks)
        return (weights / weights.sum(-1, keepdim=True)).to(x.dtype), picks

    def forward(self, x):
        weights, picks = self.route(x)
        out = torch.zeros_like(x)
        for index, expert in enumerate(self.experts):
            rows, slot = (picks == index).nonzero(as_tuple=True)
            if rows.numel():
                out.index_add_(0, rows, expert(x[rows]) * weights[rows, slot].unsqueeze(-1))
        load = picks.flatten().bincount(minlength=len(self.experts)).float()
        self.balance += 1e-3 * (load.mean() - load).sign()
        return x + out


torch.manual_seed(0)
model = MoE(32, 8, 2).bfloat16().eval()
model.balance = model.balance.float()
with torch.no_grad():
    for _ in range(10):
        out = model(torch.randn(64, 32).bfloat16())
print(out.dtype, model.balance.dtype, round(float(model.balance.abs().max()), 4))
