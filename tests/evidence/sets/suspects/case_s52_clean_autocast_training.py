"""
title: autocast in bfloat16 over float32 weights
expect: clean
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(2)

model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
x, y = torch.randn(64, 16), torch.randint(0, 4, (64,))
for step in range(5):
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(x)
    loss = F.cross_entropy(logits.float(), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
result = loss.detach()
print(f"{result:.3g}")
