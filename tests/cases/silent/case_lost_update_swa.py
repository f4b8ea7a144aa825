"""
title: torch's own averaged model is made of bfloat16 weights and never moves
expect: silent:lost-update
"""
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 3)).to(torch.bfloat16)  # BORN
shadow = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9999))
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
for _ in range(8):
    loss = nn.functional.cross_entropy(model(torch.randn(16, 12, dtype=torch.bfloat16)).float(), torch.randint(0, 3, (16,)))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    shadow.update_parameters(model)
print(loss.isfinite().item())
