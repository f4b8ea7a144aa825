"""
title: bfloat16 weights do not move at this rate; the loss in bfloat16 is harmless
expect: silent:lost-update|precision-loss
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(22)

model = nn.Linear(16, 4).to(torch.bfloat16)  # BORN
with torch.no_grad():
    model.weight.fill_(1.0)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
x = torch.randn(64, 16)
for step in range(6):
    made = model(x.to(model.weight.dtype))
    loss = made.bfloat16().float().square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
result = (model.weight.float() - 1).square().sum()
print(f"{result:.3g}")
