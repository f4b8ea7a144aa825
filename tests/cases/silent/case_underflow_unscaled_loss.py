"""
title: a float16 network is trained without a loss scaler, and a mean over many pixels leaves no gradient
expect: silent:zero-gradient|underflow
"""
import torch
from torch import nn


def network():
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.SiLU(), nn.Conv2d(8, 3, 3, padding=1)).half()


def step(model, optimizer, images):
    out = model(images)
    loss = (out.float() - images.float()).pow(2).mean() * 1e-3
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


torch.manual_seed(0)
model = network()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    print(round(step(model, optimizer, torch.randn(4, 3, 64, 64).half()), 6))
