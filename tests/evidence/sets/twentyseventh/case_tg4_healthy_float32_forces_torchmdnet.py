"""
title: the network only knows float32 while the integrator keeps its state in double
expect: clean
thread: https://github.com/torchmd/torchmd-net/issues/181
measured: total energy -42.383 -> -42.384, spread 0.003, momentum 0.0000
suspect: 46 negligible (coordinates of a few units keep seven digits)

Expectation, written first: positions and velocities are double and only the force evaluation works on a float32 copy of
positions below ten units. The force error of 1e-6 is far below the error of the time step, and the updates are added in
double. The energy drift that is printed is that of the integrator.
"""
import torch
import torch.nn as nn


class Distance(nn.Module):
    def __init__(self, cutoff):
        super().__init__()
        self.cutoff = cutoff

    def forward(self, pos):
        i, j = torch.triu_indices(len(pos), len(pos), offset=1)
        return (pos[i] - pos[j]).norm(dim=-1)


class PairNet(nn.Module):
    """a smooth learned-like pair potential: repulsive core and a shallow well"""

    def __init__(self, cutoff=8.0):
        super().__init__()
        self.distance = Distance(cutoff)
        self.register_buffer("centers", torch.tensor([0.0, 1.6]))
        self.register_buffer("heights", torch.tensor([6.0, -0.6]))
        self.register_buffer("widths", torch.tensor([0.7, 0.5]))

    def forward(self, pos):
        d = self.distance(pos).unsqueeze(-1)
        return (self.heights * torch.exp(-((d - self.centers) / self.widths) ** 2)).sum()


class External:
    def __init__(self, model):
        self.model = model.float()

    def calculate(self, pos):
        pos32 = pos.to(torch.float32).requires_grad_(True)
        energy = self.model(pos32)
        forces = -torch.autograd.grad(energy, pos32)[0]
        return energy.item(), forces.to(pos.dtype)


class VelocityVerlet:
    def __init__(self, external, pos, vel, dt):
        self.external, self.pos, self.vel, self.dt = external, pos, vel, dt
        self.epot, self.forces = external.calculate(pos)

    def step(self):
        self.vel += 0.5 * self.dt * self.forces
        self.pos += self.dt * self.vel
        self.epot, self.forces = self.external.calculate(self.pos)
        self.vel += 0.5 * self.dt * self.forces
        return self.epot + 0.5 * self.vel.pow(2).sum().item()


def main():
    torch.manual_seed(181)
    grid = torch.cartesian_prod(*[torch.arange(3, dtype=torch.float64)] * 3) * 1.5
    vel = 0.1 * torch.randn(27, 3, dtype=torch.float64)
    vel -= vel.mean(dim=0)
    integrator = VelocityVerlet(External(PairNet()), grid, vel, dt=0.01)
    energies = [integrator.step() for _ in range(600)]
    spread = max(energies) - min(energies)
    momentum = integrator.vel.sum(dim=0).norm().item()
    print(f"total energy {energies[0]:.3f} -> {energies[-1]:.3f}, spread {spread:.3f}, momentum {momentum:.4f}")


main()
