"""
title: FIRE cell relaxation in float64 adds the atomic power into a per-batch buffer of the default dtype
expect: collision
thread: https://github.com/TorchSim/torch-sim/pull/27

Expectation, written first: positions, velocities and forces are float64 as the state asks. In fire_step the sum of the
atomic power per batch is allocated with torch.zeros without a dtype, which is float32, and scatter_add_ refuses the
float64 source. The allocation must carry the dtype of the state.
"""
from dataclasses import dataclass

import torch


@dataclass
class SimState:
    positions: torch.Tensor
    masses: torch.Tensor
    cell: torch.Tensor
    batch: torch.Tensor

    @property
    def n_batches(self):
        return int(self.batch.max()) + 1


@dataclass
class UnitCellFireState(SimState):
    velocities: torch.Tensor
    forces: torch.Tensor
    dt: torch.Tensor
    alpha: torch.Tensor


class HarmonicModel:
    def __init__(self, k=0.5, dtype=torch.float64):
        self.k, self.dtype = k, dtype

    def __call__(self, state):
        energy = torch.zeros(state.n_batches, dtype=self.dtype)
        energy.index_add_(0, state.batch, 0.5 * self.k * state.positions.pow(2).sum(-1))
        return {"energy": energy, "forces": -self.k * state.positions}


def unit_cell_fire(model, dt_start=0.1, dt_max=1.0, alpha_start=0.1, f_alpha=0.99):
    dtype = model.dtype

    def fire_init(state):
        out = model(state)
        dt = torch.full((state.n_batches,), dt_start, dtype=dtype)
        alpha = torch.full((state.n_batches,), alpha_start, dtype=dtype)
        extra = {"velocities": torch.zeros_like(state.positions), "dt": dt, "alpha": alpha}
        return UnitCellFireState(**vars(state), forces=out["forces"], **extra)

    def fire_step(state):
        n_batches = state.n_batches
        state.velocities = state.velocities + state.dt[state.batch, None] * state.forces / state.masses[:, None]
        state.positions = state.positions + state.dt[state.batch, None] * state.velocities
        results = model(state)
        state.forces = results["forces"]
        atomic_power = (state.forces * state.velocities).sum(dim=1)
        atomic_power_per_batch = torch.zeros(n_batches, device=atomic_power.device)  # BORN
        atomic_power_per_batch.scatter_add_(dim=0, index=state.batch, src=atomic_power)  # COLLIDES
        uphill = atomic_power_per_batch < 0
        state.dt = torch.where(uphill, state.dt * 0.5, (state.dt * 1.1).clamp(max=dt_max))
        state.alpha = torch.where(uphill, torch.full_like(state.alpha, alpha_start), state.alpha * f_alpha)
        state.velocities = torch.where(uphill[state.batch, None], 0 * state.velocities, state.velocities)
        return state, results["energy"]

    return fire_init, fire_step


def main():
    torch.manual_seed(0)
    positions = torch.randn(8, 3, dtype=torch.float64)
    cell = 5.0 * torch.eye(3, dtype=torch.float64).repeat(2, 1, 1)
    state = SimState(positions, torch.full((8,), 28.0, dtype=torch.float64), cell, torch.arange(8) // 4)
    init_fn, step_fn = unit_cell_fire(HarmonicModel())
    state = init_fn(state)
    for step in range(20):
        state, energy = step_fn(state)
        if step % 10 == 0:
            print(step, energy.tolist())


if __name__ == "__main__":
    main()
