"""
title: gradients are stored in bfloat16 to save memory, under float32 weights
expect: silent:gradient-dtype
"""
import torch
from torch import nn


def shrink(parameters):
    for parameter in parameters:
        if parameter.grad is not None:
            parameter.grad.data = parameter.grad.bfloat16()  # BORN


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    model(torch.randn(4, 8)).pow(2).mean().backward()
    shrink(model.parameters())
    optimizer.step()
    optimizer.zero_grad()
print(round(model(torch.ones(1, 8)).sum().item(), 4))
