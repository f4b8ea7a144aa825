"""
title: a custom autograd function whose saved statistics widen the gradient that a weight hook returns
expect: collision
"""
import torch
from torch import nn


class Centre(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x - x.mean(0, keepdim=True)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        mixing = torch.full((len(x), len(x)), -1 / len(x))  # BORN
        mixing.diagonal().add_(1)
        return torch.einsum("ij,jk->ik", mixing, grad)  # COLLIDES


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 2)).half()
hidden = Centre.apply(model[0](torch.randn(5, 4).half()))
model[1](hidden).float().square().mean().backward()
print([p.grad.dtype for p in model.parameters()])
