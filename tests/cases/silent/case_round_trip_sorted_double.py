"""
title: float32 tokens travel through float64 to be sorted into place
expect: silent:round-trip

Only gathers and joins happen in double.
"""
import torch
from torch import nn


def grouped(tokens, expert, count):
    wide = tokens.double()  # BORN
    return [wide[expert == one].float() for one in range(count)]  # BORN


class Hashed(nn.Module):
    def __init__(self, width, count):
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(width, width) for _ in range(count))

    def forward(self, x):
        expert = torch.arange(len(x)) % len(self.experts)
        out = torch.zeros_like(x)
        for one, part in enumerate(grouped(x, expert, len(self.experts))):
            out[expert == one] = self.experts[one](part)
        return out


torch.manual_seed(0)
model = nn.Sequential(Hashed(8, 3), nn.Tanh(), Hashed(8, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    loss = model(torch.randn(12, 8)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(loss.isfinite().item())