"""
title: an average kept in bfloat16 does not move; what it averages is rounded too
expect: silent:lost-update|downcast|precision-loss
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(8)

class Average:
    def __init__(self, model):
        self.kept = [p.detach().to(torch.bfloat16) for p in model.parameters()]  # BORN

    @torch.no_grad()
    def update(self, model):
        for kept, p in zip(self.kept, model.parameters()):
            seen = p.bfloat16()
            kept.lerp_(seen.to(kept.dtype), 0.001)

model = nn.Linear(16, 16)
average = Average(model)
start = [k.clone().float() for k in average.kept]
with torch.no_grad():
    for p in model.parameters():
        p.add_(0.5)
for step in range(60):
    average.update(model)
result = sum((k.float() - s).square().sum() for k, s in zip(average.kept, start))
print(f"{result:.3g}")
