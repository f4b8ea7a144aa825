"""
title: the per-system power of a batched FIRE relaxation is summed into a buffer of the default dtype
expect: collision
thread: https://github.com/TorchSim/torch-sim/pull/27
fix_at: 27, 47, 54, 55

Expectation, written first: positions, forces and velocities are float64 as the simulation asks, the blank sums of
the systems are made without a dtype and are float32; scatter_add_ refuses a source of another dtype.
"""
from dataclasses import dataclass

import torch


@dataclass
class SimState:
    positions: torch.Tensor
    batch: torch.Tensor
    n_batches: int
    velocities: torch.Tensor = None
    power: torch.Tensor = None
    dt: torch.Tensor = None
    alpha: torch.Tensor = None


def blank_sums(state):
    return torch.zeros(state.n_batches)  # BORN


class LennardJones:
    def __init__(self, epsilon=1.0, sigma=1.0):
        self.epsilon, self.sigma = epsilon, sigma

    def __call__(self, state):
        pos = state.positions.detach().requires_grad_()
        same = state.batch[:, None] == state.batch[None]
        pairs = torch.triu(same, diagonal=1).nonzero()
        r = (pos[pairs[:, 0]] - pos[pairs[:, 1]]).norm(dim=-1)
        s6 = (self.sigma / r) ** 6
        energy = (4 * self.epsilon * (s6 * s6 - s6)).sum()
        forces = -torch.autograd.grad(energy, pos)[0]
        return energy.detach(), forces


def fire_init(state, dt=0.005, alpha=0.1):
    state.velocities = torch.zeros_like(state.positions)
    state.power = blank_sums(state)
    state.dt = torch.full((state.n_batches,), dt, dtype=state.positions.dtype)
    state.alpha = torch.full_like(state.dt, alpha)
    return state


def system_power(state, forces):
    atomic = (forces * state.velocities).sum(-1)
    return state.power.zero_().scatter_add_(0, state.batch, atomic)  # COLLIDES


def fire_step(state, forces):
    uphill = system_power(state, forces) < 0
    state.alpha = torch.where(uphill, torch.full_like(state.alpha, 0.1), state.alpha * 0.99)
    state.dt = torch.where(uphill, state.dt * 0.5, (state.dt * 1.1).clamp(max=0.02))
    v = torch.where(uphill[state.batch, None], 0.0, state.velocities)
    v = v + state.dt[state.batch, None] * forces
    mix = state.alpha[state.batch, None]
    v = (1 - mix) * v + mix * forces * v.norm() / forces.norm().clamp(min=1e-12)
    state.velocities, state.positions = v, state.positions + state.dt[state.batch, None] * v
    return state


def cluster(n, gen, dtype=torch.float64):
    grid = torch.cartesian_prod(*[torch.arange(2, dtype=dtype)] * 3)[:n] * 1.15
    return grid + 0.03 * torch.randn(n, 3, generator=gen, dtype=dtype)


def main():
    gen = torch.Generator().manual_seed(4)
    sizes = [5, 8, 6]
    positions = torch.cat([cluster(n, gen) + 50.0 * k for k, n in enumerate(sizes)])
    batch = torch.arange(3).repeat_interleave(torch.tensor(sizes))
    state = fire_init(SimState(positions, batch, 3))
    model = LennardJones()
    for _ in range(60):
        energy, forces = model(state)
        state = fire_step(state, forces)
    print(f"energy {energy.item():.6f}, largest force {forces.abs().max().item():.4f}")


main()
