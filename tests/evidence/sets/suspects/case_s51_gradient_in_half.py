"""
title: a gradient vanishes on its way through half; the target in half is harmless
expect: silent:underflow|zero-gradient|precision-loss
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(24)

class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(16, 16), nn.Linear(16, 1)

    def forward(self, x):
        x = self.first(x).tanh()
        x = x.half()  # BORN
        return self.last(x.float())

critic = Critic()
optimizer = torch.optim.SGD(critic.parameters(), lr=0.1)
x, target = torch.randn(256, 16), torch.randn(256, 1)
target = target.half().float()
for step in range(4):
    loss = 1e-6 * (critic(x) - target).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
result = critic.first.weight.grad.square().sum().sqrt() * 1e6
print(f"{result:.3g}")
