"""
title: a running average of float32 weights is kept in a half copy
expect: collision

lerp_ wants both ends in one dtype. The network trains in float32 throughout; the copy that is to follow it was
halved to save memory, which would also have lost most of its small steps.
"""
import copy
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Average:
    model: nn.Module
    decay: float = 0.99
    shadow: nn.Module = field(init=False)

    def __post_init__(self):
        self.shadow = copy.deepcopy(self.model).half()  # BORN
        self.shadow.requires_grad_(False)

    @torch.no_grad()
    def update(self):
        for slow, fast in zip(self.shadow.parameters(), self.model.parameters()):
            slow.lerp_(fast, 1 - self.decay)  # COLLIDES


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 2))
average = Average(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    x = torch.randn(8, 5)
    F.mse_loss(model(x), x[:, :2]).backward()
    optimizer.step()
    optimizer.zero_grad()
    average.update()
print("distance", (average.shadow[0].weight - model[0].weight).norm().item())
