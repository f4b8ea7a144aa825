"""
title: the average is float32, what it averages is bfloat16
expect: clean
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(3)

model = nn.Linear(16, 16).bfloat16()
kept = [p.detach().float() for p in model.parameters()]
for step in range(30):
    with torch.no_grad():
        for k, p in zip(kept, model.parameters()):
            k.lerp_(p.float() + 0.5, 0.001)
result = kept[0].sum()
print(f"{result:.3g}")
