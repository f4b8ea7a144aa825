"""
title: per-sample gradients by torch.func with a reference point in numpy's dtype
expect: collision
"""
import numpy as np
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(5, 8), nn.GELU(), nn.Linear(8, 1)).to(torch.bfloat16)
weights = {name: p.detach() for name, p in model.named_parameters()}


def reference():
    points = np.linspace(-1, 1, 5)
    return torch.from_numpy(points)  # BORN


def energy(weights, x, anchor):
    return functional_call(model, weights, (x - anchor,)).sum()  # COLLIDES


rows = torch.randn(4, 5, dtype=torch.bfloat16)
anchor = reference()
each = vmap(grad(energy), in_dims=(None, 0, None))(weights, rows, anchor)
print({name: value.shape for name, value in each.items()})
