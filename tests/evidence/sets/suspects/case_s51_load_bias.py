"""
title: a small step is added to a bfloat16 bias; the loads that give its sign are in half
expect: silent:lost-update|downcast|precision-loss
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(7)

class Balance(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("bias", torch.ones(8, dtype=torch.bfloat16))  # BORN

    def update(self, load):
        load = load.half()
        sign = (load.mean() - load).sign()
        self.bias.add_(sign.to(self.bias.dtype), alpha=1e-3)

balance = Balance()
for step in range(40):
    balance.update(torch.tensor([9.0, 1, 2, 8, 3, 7, 12, 1]))
result = balance.bias.float().square().sum()
print(f"{result:.3g}")
