"""
title: a tensor subclass with __torch_function__ that carries units, made by a converter
expect: collision
"""
import torch
from torch import nn


class Metres(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, kwargs or {})

    @classmethod
    def of_feet(cls, values):
        return (torch.tensor(values) * 0.3048).as_subclass(cls)  # BORN


class Height(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(3, 8), nn.Linear(8, 1)

    def forward(self, x):
        return self.outer(self.inner(x).tanh())  # COLLIDES


torch.manual_seed(0)
model = Height().bfloat16()
print(model(Metres.of_feet([[5.5, 6.1, 5.9], [6.0, 5.0, 4.5]])).shape)
