"""
title: a foreach average in float16
expect: silent:lost-update
"""
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(16, 8)
kept = [p.detach().clone().half() for p in model.parameters()]  # BORN
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
for _ in range(6):
    model(torch.randn(8, 16)).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    with torch.no_grad():
        torch._foreach_lerp_(kept, [p.detach().half() for p in model.parameters()], 1e-4)
print(kept[0].float().mean().item())
