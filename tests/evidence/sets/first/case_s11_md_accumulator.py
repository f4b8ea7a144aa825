"""
title: a relaxation in float64 adds its power per system into a float32 accumulator
expect: collision

After TorchSim/torch-sim#27 (fire_step: "scatter(): Expected self.dtype to be equal to src.dtype"). Positions, velocities and the
potential are double on purpose; only the accumulator, made by torch.zeros without a dtype, is float32.
Right change: make the accumulator in the state's dtype. To narrow the power would be wrong.
"""
from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class State:
    positions: torch.Tensor
    velocities: torch.Tensor
    system: torch.Tensor
    n_systems: int


class Potential(nn.Module):
    def __init__(self, hidden=8):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, hidden), nn.Tanh(), nn.Linear(hidden, 1))

    def forward(self, positions):
        return self.net(positions).sum() + 0.5 * positions.square().sum()


class Totals:
    def __init__(self, n_systems):
        self.power = torch.zeros(n_systems)  # BORN
        self.steps = torch.zeros(n_systems, dtype=torch.long)

    def reset(self):
        self.power.zero_()

    def add_power(self, system, per_atom):
        self.power.scatter_add_(0, system, per_atom)  # COLLIDES
        return self.power


def forces_of(potential, positions):
    positions = positions.detach().requires_grad_()
    return -torch.autograd.grad(potential(positions), positions)[0]


def fire(potential, state, steps=3, dt=0.05):
    totals = Totals(state.n_systems)
    for _ in range(steps):
        forces = forces_of(potential, state.positions)
        totals.reset()
        power = totals.add_power(state.system, (forces * state.velocities).sum(-1))
        downhill = (power > 0)[state.system].unsqueeze(-1)
        state.velocities = torch.where(downhill, state.velocities, torch.zeros_like(state.velocities)) + dt * forces
        state.positions = state.positions + dt * state.velocities
    return state


torch.manual_seed(0)
potential = Potential().double()
positions = torch.randn(7, 3, dtype=torch.float64)
state = State(positions, torch.zeros_like(positions), torch.tensor([0, 0, 0, 1, 1, 2, 2]), 3)
print(fire(potential, state).positions.abs().max().item() < 10)
