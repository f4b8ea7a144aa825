"""
title: the average of the weights is a copy in bfloat16 and never moves
expect: silent:lost-update
"""
import copy

import torch
from torch import nn


class Average:
    def __init__(self, model, decay):
        self.model = copy.deepcopy(model).to(torch.bfloat16).requires_grad_(False)  # BORN
        self.decay = decay

    @torch.no_grad()
    def update(self, model):
        for kept, new in zip(self.model.parameters(), model.parameters()):
            kept.mul_(self.decay).add_(new.to(kept.dtype), alpha=1 - self.decay)


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 4))
average = Average(model, decay=0.9995)
start = [p.clone() for p in average.model.parameters()]
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for _ in range(8):
    model(torch.randn(8, 16)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    average.update(model)
print("moved", sum(int((a != b).sum()) for a, b in zip(start, average.model.parameters())))
