"""
title: FIRE relaxes many crystals in float64, the power of each is summed into a float32 tensor
expect: collision
thread: https://github.com/TorchSim/torch-sim/pull/27

Expectation, written first: positions, forces and velocities are float64 as the state asks;
the tensor of sums per crystal is allocated in the default dtype and scatter_add_ refuses.
"""
from dataclasses import dataclass

import torch


@dataclass
class State:
    positions: torch.Tensor
    batch: torch.Tensor
    velocities: torch.Tensor
    dt: torch.Tensor

    @property
    def n_batches(self):
        return int(self.batch.max()) + 1


def springs(positions, batch):
    delta = positions[:, None] - positions[None]
    same = (batch[:, None] == batch[None]) & ~torch.eye(len(batch), dtype=torch.bool)
    dist = delta.norm(dim=-1).clamp(min=1e-6)
    pull = torch.where(same, dist - 1.2, torch.zeros_like(dist)) / dist
    return -(pull[..., None] * delta).sum(1)


def initial_state(dtype=torch.float64, seed=0):
    gen = torch.Generator().manual_seed(seed)
    batch = torch.arange(3).repeat_interleave(4)
    positions = torch.randn(12, 3, generator=gen, dtype=dtype)
    return State(positions, batch, torch.zeros_like(positions), torch.full((3,), 0.05, dtype=dtype))


def power_per_batch(forces, state):
    atomic = (forces * state.velocities).sum(-1)
    total = torch.zeros(state.n_batches)  # BORN
    return total.scatter_add_(0, state.batch, atomic)  # COLLIDES


def fire_step(state):
    forces = springs(state.positions, state.batch)
    power = power_per_batch(forces, state)
    uphill = power < 0
    state.dt = torch.where(uphill, state.dt * 0.5, (state.dt * 1.05).clamp(max=0.2))
    state.velocities = state.velocities * (~uphill)[state.batch, None]
    state.velocities = state.velocities + state.dt[state.batch, None] * forces
    state.positions = state.positions + state.dt[state.batch, None] * state.velocities
    return forces.abs().max().item()


state = initial_state()
for _ in range(50):
    fmax = fire_step(state)
print(f"largest force {fmax:.2e}")
