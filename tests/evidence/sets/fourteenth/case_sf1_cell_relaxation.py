"""
title: the power of a batched FIRE relaxation is collected per structure in a default-typed buffer
expect: collision
thread: https://github.com/TorchSim/torch-sim/pull/27
fix_at: 54, 55

Expectation, written first: positions, velocities and forces are float64; the buffer is made without a dtype and is
float32; scattering the power of the atoms into it is refused.
"""
from dataclasses import dataclass

import torch


@dataclass
class State:
    positions: torch.Tensor
    velocities: torch.Tensor
    batch: torch.Tensor
    dt: torch.Tensor
    alpha: torch.Tensor
    n_pos: torch.Tensor

    @property
    def n_batches(self):
        return len(self.dt)


class Morse:
    def __init__(self, depth=1.0, width=1.4, rest=1.1):
        self.depth, self.width, self.rest = depth, width, rest

    def energy(self, positions, batch):
        same = (batch[:, None] == batch[None]) & ~torch.eye(len(batch), dtype=torch.bool)
        i, j = same.nonzero().T
        r = (positions[i] - positions[j]).norm(dim=-1)
        return 0.5 * (self.depth * (1 - torch.exp(-self.width * (r - self.rest))).square()).sum()

    def forces(self, positions, batch):
        x = positions.detach().requires_grad_()
        return -torch.autograd.grad(self.energy(x, batch), x)[0]


def fire_init(positions, batch, dt=0.05):
    n = int(batch.max()) + 1
    dt = torch.full((n,), dt, dtype=positions.dtype)
    alpha, n_pos = torch.full_like(dt, 0.1), torch.zeros(n, dtype=torch.int64)
    return State(positions, torch.zeros_like(positions), batch, dt, alpha, n_pos)


def fire_step(state, model, f_inc=1.1, f_dec=0.5, dt_max=0.2):
    forces = model.forces(state.positions, state.batch)
    atomic_power = (forces * state.velocities).sum(-1)
    power = torch.zeros(state.n_batches)  # BORN
    power.scatter_add_(0, state.batch, atomic_power)  # COLLIDES
    up = power > 0
    state.n_pos = torch.where(up, state.n_pos + 1, 0)
    state.dt = torch.where(up & (state.n_pos > 5), (state.dt * f_inc).clamp(max=dt_max), state.dt)
    state.dt = torch.where(up, state.dt, state.dt * f_dec)
    a = state.alpha[state.batch, None]
    mixed = (1 - a) * state.velocities + a * forces * state.velocities.norm() / forces.norm().clamp(min=1e-12)
    v = torch.where(up[state.batch, None], mixed, torch.zeros_like(mixed))
    dt = state.dt[state.batch, None]
    state.velocities = v + dt * forces
    state.positions = state.positions + dt * state.velocities
    return state


def main():
    gen = torch.Generator().manual_seed(9)
    batch = torch.tensor([0] * 4 + [1] * 3 + [2] * 5)
    positions = torch.randn(len(batch), 3, generator=gen, dtype=torch.float64)
    model, state = Morse(), fire_init(positions, batch)
    before = model.energy(state.positions, batch)
    for _ in range(60):
        state = fire_step(state, model)
    print(f"energy {before.item():.4f} -> {model.energy(state.positions, batch).item():.4f}")


main()
