"""
title: the self energies of the atoms are brought to the dtype of the network's energies before they are added
expect: silent:precision-loss|downcast|round-trip|lost-update
thread: https://github.com/aiqm/torchani/issues/199
measured: barrier 4.90 kcal/mol, distinct energies on the way up 5 of 13
widened: barrier 4.41 kcal/mol, distinct energies on the way up 13 of 13

Expectation, written first: a peptide of eight hundred atoms has a total of -29000 hartree; float32 keeps steps of
0.002 hartree there, that is 1.2 kcal/mol, a good part of the barrier that is asked for. The species are int8, which is wide
enough for four elements.
"""
import torch
from torch import nn

HARTREE = 627.5094738898777
SELF_ENERGIES = torch.tensor([-0.5978583943827134, -38.08933878049795, -54.711968298621066, -75.19106774742086], dtype=torch.float64)


class AtomicNets(nn.Module):
    def __init__(self, features=12):
        super().__init__()
        self.nets = nn.ModuleList(nn.Sequential(nn.Linear(features, 16), nn.CELU(), nn.Linear(16, 1)) for _ in range(4))

    def forward(self, species, aev):
        out = aev.new_zeros(species.shape)
        for k, net in enumerate(self.nets):
            chosen = species == k
            out[chosen] = 0.02 * net(aev[chosen])[:, 0]
        return out.sum(-1)


class EnergyShifter(nn.Module):
    def __init__(self, self_energies):
        super().__init__()
        self.register_buffer("self_energies", self_energies)

    def sae(self, species):
        return self.self_energies[species.long()].sum(-1)

    def forward(self, species, energies):
        sae = self.sae(species).to(energies.dtype)  # BORN
        return energies + sae


def torsion(gen, atoms=800, frames=25):
    species = torch.multinomial(torch.tensor([0.5, 0.32, 0.09, 0.09]), atoms, replacement=True, generator=gen).to(torch.int8)
    base = torch.rand(atoms, 12, generator=gen)
    turn = torch.zeros(atoms, 12)
    turn[:60] = torch.rand(60, 12, generator=gen)
    angle = torch.linspace(0, 2 * torch.pi, frames)
    return species.expand(frames, -1), base + 0.4 * turn * (1 - angle.cos())[:, None, None]


def main():
    gen = torch.Generator().manual_seed(4)
    torch.manual_seed(4)
    species, aev = torsion(gen)
    with torch.no_grad():
        energies = AtomicNets()(species, aev)
        total = EnergyShifter(SELF_ENERGIES)(species, energies)
    scan = (total - total[0]).double() * HARTREE
    print(f"barrier {scan.max() - scan.min():.2f} kcal/mol, distinct energies on the way up {len(scan[:13].unique())} of 13")


main()
