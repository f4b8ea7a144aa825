"""
title: the energy of a reaction from a learned potential with atomic reference energies
expect: silent:precision-loss|downcast
thread: https://github.com/aiqm/torchani/issues/199
measured: kcal/mol along the path [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
widened: kcal/mol along the path [0.0, 0.082, 0.163, 0.243, 0.321, 0.397, 0.467, 0.532, 0.593]

Expectation, written first: the reference energies of the atoms, thousands of Hartree
in sum, are kept in float32 and are added to small network energies; the difference of two
such totals has lost the small part, so the barrier in kcal/mol is wrong.
BORN is the float32 of the reference energies; float64 there makes the totals float64.
"""
import torch
from torch import nn

HARTREE = 627.5094738


class AtomNet(nn.Module):
    def __init__(self, kinds=4):
        super().__init__()
        self.table = nn.Embedding(kinds, 8)
        self.net = nn.Sequential(nn.Linear(9, 16), nn.CELU(0.1), nn.Linear(16, 1))

    def forward(self, kinds, coords):
        dist = torch.cdist(coords, coords)
        crowd = torch.exp(-dist).sum(1, keepdim=True) - 1
        return 0.01 * self.net(torch.cat([self.table(kinds), crowd], 1)).sum()


class EnergyShifter(nn.Module):
    def __init__(self, reference):
        super().__init__()
        self.register_buffer("reference", torch.tensor(reference, dtype=torch.float32))  # BORN

    def forward(self, kinds, energy):
        return energy + self.reference[kinds].sum()


class Potential(nn.Module):
    def __init__(self):
        super().__init__()
        self.atoms = AtomNet()
        self.shifter = EnergyShifter([-0.6009, -38.0832, -54.7077, -398.0641])

    def forward(self, kinds, coords):
        return self.shifter(kinds, self.atoms(kinds, coords))


def complex_of(atoms, gen):
    kinds = torch.randint(0, 4, (atoms,), generator=gen)
    return kinds, 3 * torch.rand(atoms, 3, generator=gen)


@torch.no_grad()
def barrier(potential, kinds, coords, steps=9):
    """Highest point above the start along a small displacement of one atom."""
    path = []
    for k in range(steps):
        moved = coords.clone()
        moved[0] += 0.02 * k
        path.append(potential(kinds, moved))
    path = torch.stack(path).double()
    return ((path - path[0]) * HARTREE).tolist()


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(0)
    kinds, coords = complex_of(140, gen)
    curve = barrier(Potential(), kinds, coords)
    print("kcal/mol along the path", [round(v, 3) for v in curve])


if __name__ == "__main__":
    main()
