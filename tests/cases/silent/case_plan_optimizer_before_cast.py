"""
title: the head is made anew in half after the optimizer was built, which goes on stepping over the old one
expect: silent:plan
"""
import torch
from torch import nn


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 8).requires_grad_(False)
        self.head = nn.Linear(8, 3, bias=False)

    def forward(self, x):
        return self.head(self.body(x).to(self.head.weight.dtype))


torch.manual_seed(0)
model = Classifier()
optimizer = torch.optim.SGD(model.head.parameters(), lr=0.1)
model.head.weight = nn.Parameter(model.head.weight.detach().bfloat16())
for _ in range(3):
    loss = model(torch.randn(4, 8)).float().pow(2).mean()
    loss.backward()
    optimizer.step()
print(round(loss.item(), 3))
