"""
title: gradients of bfloat16 micro-batches are summed in float32, and a loss weighs float32 targets
expect: clean

What is summed is wider than what is added, so nothing is lost, and the loss is computed in float32 on purpose.
"""
import torch
from torch import nn


def train(model, master, sums, micro, rounds):
    for _ in range(rounds):
        for total in sums:
            total.zero_()
        for _ in range(micro):
            x = torch.randn(8, 8)
            error = model(x.bfloat16()) - x[:, :2]
            (error.square() * torch.rand(8, 1)).mean().backward()
            for total, parameter in zip(sums, model.parameters()):
                total += parameter.grad
                parameter.grad = None
        with torch.no_grad():
            for wide, total, parameter in zip(master, sums, model.parameters()):
                wide -= 0.1 * total / micro
                parameter.copy_(wide)


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.Linear(16, 2)).bfloat16()
master = [p.detach().float() for p in model.parameters()]
sums = [torch.zeros_like(m) for m in master]
train(model, master, sums, micro=3, rounds=2)
print({m.dtype for m in master}, {p.dtype for p in model.parameters()})