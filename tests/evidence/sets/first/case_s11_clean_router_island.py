"""
title: a mixture of experts under autocast whose router is a float32 island, with a cast at its door
expect: clean

Looks like the island that forgets its cast: autocast(enabled=False), float32 router weights, and `x.float()` at the entrance.
The gates return to the stream's dtype, tokens are gathered and added back with index_add in one dtype.
"""
import torch
import torch.nn.functional as F
from torch import nn


class Router(nn.Module):
    def __init__(self, width, experts):
        super().__init__()
        self.gate = nn.Linear(width, experts, bias=False)

    def forward(self, x):
        with torch.autocast("cpu", enabled=False):
            probabilities = self.gate(x.float()).softmax(-1)
        weight, chosen = probabilities.topk(2, -1)
        return weight / weight.sum(-1, keepdim=True), chosen, probabilities


class MoE(nn.Module):
    def __init__(self, width=16, experts=4):
        super().__init__()
        self.router = Router(width, experts)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width)) for _ in range(experts))

    def forward(self, x):
        weight, chosen, probabilities = self.router(x)
        out = torch.zeros_like(x, dtype=torch.float32)
        for e, expert in enumerate(self.experts):
            token, slot = (chosen == e).nonzero(as_tuple=True)
            out = out.index_add(0, token, expert(x[token]).float() * weight[token, slot, None])
        balance = len(self.experts) * (probabilities.mean(0).square()).sum()
        return out, balance


class Model(nn.Module):
    def __init__(self, width=16, classes=5):
        super().__init__()
        self.inp, self.norm, self.moe, self.head = nn.Linear(8, width), nn.LayerNorm(width), MoE(width), nn.Linear(width, classes)

    def forward(self, x):
        x = self.inp(x)
        out, balance = self.moe(self.norm(x))
        return self.head(x + out), balance


torch.manual_seed(0)
model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
x, y = torch.randn(64, 8), torch.randint(5, (64,))
losses = []
for step in range(10):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits, balance = model(x)
    loss = F.cross_entropy(logits.float(), y) + 0.01 * balance
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    losses.append(loss.item())
print(losses[-1] < losses[0])
