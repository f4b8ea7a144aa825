"""
title: a float32 average of bfloat16 weights, copied into a bfloat16 model for validation
expect: clean

The average is wide where it is accumulated; its copy for validation is rounded once, as every weight of that model is.
"""
import copy

import torch
import torch.nn.functional as F
from torch import nn


class Average:
    def __init__(self, model, decay):
        self.decay = decay
        self.mean = {name: value.detach().float().clone() for name, value in model.named_parameters()}

    @torch.no_grad()
    def update(self, model):
        for name, value in model.named_parameters():
            self.mean[name].lerp_(value.float(), 1 - self.decay)

    @torch.no_grad()
    def write_to(self, model):
        for name, value in model.named_parameters():
            value.copy_(self.mean[name])
        return model


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 3)).bfloat16()
shadow = copy.deepcopy(model).requires_grad_(False).eval()
average = Average(model, decay=0.5)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
for _ in range(4):
    x = torch.randn(32, 8).bfloat16()
    label = x[:, :3].argmax(dim=-1)
    loss = F.cross_entropy(model(x).float(), label)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    average.update(model)
    with torch.no_grad():
        right = (average.write_to(shadow)(x).argmax(dim=-1) == label).float().mean()
print(right.dtype)