"""
title: relaxing a structure until the energy no longer changes
expect: silent:precision-loss|downcast|lost-update
thread: https://github.com/deepmodeling/deepmd-kit/pull/2654
measured: stopped after 5 steps with a force of 0.0571 eV/A
widened: stopped after 128 steps with a force of 0.0018 eV/A

Expectation, written first: total energies near -6e4 eV are kept in float32, with steps
of 0.004 eV, so two of them look equal long before the structure is relaxed and the loop stops
early. BORN is the float32 of the stored energy; float64 goes on to the minimum. The half
forces only serve the printed maximum.
"""
import torch


class Crystal:
    """Harmonic bonds on top of a huge reference energy."""

    def __init__(self, atoms, reference, seed):
        gen = torch.Generator().manual_seed(seed)
        self.rest = torch.arange(atoms, dtype=torch.float64)
        self.x = self.rest + 0.15 * torch.rand(atoms, generator=gen, dtype=torch.float64)
        self.reference = reference

    def energy(self, x):
        bonds = x[1:] - x[:-1] - 1.0
        return self.reference + 2.0 * bonds.square().sum()

    def forces(self, x):
        x = x.clone().requires_grad_(True)
        return -torch.autograd.grad(self.energy(x), x)[0]


class History:
    def __init__(self):
        self.energies, self.largest = [], []

    def add(self, energy, forces):
        self.energies.append(energy.to(torch.float32))  # BORN
        self.largest.append(forces.abs().max().to(torch.float16))

    def change(self):
        if len(self.energies) < 2:
            return float("inf")
        return (self.energies[-2] - self.energies[-1]).abs().item()


class Relaxation:
    def __init__(self, crystal, step=0.05, tolerance=1e-6, limit=2000):
        self.crystal, self.step = crystal, step
        self.tolerance, self.limit = tolerance, limit

    def run(self):
        x, history = self.crystal.x.clone(), History()
        for count in range(self.limit):
            forces = self.crystal.forces(x)
            history.add(self.crystal.energy(x), forces)
            if history.change() < self.tolerance:
                break
            x = x + self.step * forces
        return count, history


def main():
    crystal = Crystal(atoms=40, reference=-59455.0, seed=0)
    steps, history = Relaxation(crystal).run()
    print("stopped after %d steps with a force of %.4f eV/A" % (steps, history.largest[-1].item()))


if __name__ == "__main__":
    main()
