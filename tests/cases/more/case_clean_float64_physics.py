"""
title: a simulation that is float64 from end to end, on purpose
expect: clean

The default dtype is set once and for all, numpy's arrays fit, second derivatives are taken; float64 is no accident
where everything is float64.
"""
import numpy as np
import torch
from torch import nn

torch.set_default_dtype(torch.float64)


class Potential(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, 1))
        self.register_buffer("centre", torch.zeros(2))

    def forward(self, place):
        return self.layers(place - self.centre).sum() + 0.5 * place.square().sum()


def force(potential, place, create_graph=False):
    place = place.requires_grad_()
    return -torch.autograd.grad(potential(place), place, create_graph=create_graph)[0]


def fly(potential, place, speed, step, count):
    """Velocity Verlet."""
    push = force(potential, place)
    for _ in range(count):
        speed = speed + 0.5 * step * push
        place = (place + step * speed).detach()
        push = force(potential, place)
        speed = speed + 0.5 * step * push
    return place.detach(), speed


torch.manual_seed(0)
rng = np.random.default_rng(0)
potential = Potential()
optimizer = torch.optim.Adam(potential.parameters(), lr=1e-2)
for _ in range(3):
    place = torch.from_numpy(rng.normal(size=(8, 2)))
    loss = (force(potential, place, create_graph=True) + 2 * place).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
place, speed = fly(potential, torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]]), step=0.05, count=10)
print("loss", round(loss.item(), 4), place.dtype, speed.numpy().dtype)
