"""
title: Adam's epsilon and squares vanish beside half weights; the batch in half is harmless
expect: silent:underflow|overflow|lost-update|precision-loss
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(23)

model = nn.Linear(16, 4).to(torch.float16)  # BORN
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
x = 0.01 * torch.randn(64, 16)
x = x.half()
for step in range(4):
    loss = model(x.to(model.weight.dtype)).float().square().mean()
    optimizer.zero_grad()
    (0.01 * loss).backward()
    optimizer.step()
result = model.weight.float().square().sum()
print(f"{result:.3g}")
