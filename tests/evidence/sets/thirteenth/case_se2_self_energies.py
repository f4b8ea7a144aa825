"""
title: reference energies of the atoms are added in the dtype of the network's output
expect: silent:precision-loss|downcast
thread: https://github.com/aiqm/torchani/issues/199
measured: barrier 2.45 kcal/mol, reaction energy -2.45 kcal/mol, levels along the path 3
widened: barrier 3.08 kcal/mol, reaction energy -1.32 kcal/mol, levels along the path 41

Expectation, written first: five hundred waters weigh 38 thousand hartree, where a float32 step is two and a half
kilocalories per mole; the barrier and the reaction energy along a path become multiples of it. The innocent suspect
is the descriptor of the network in float16: it is the same function for the whole path and costs a hundredth.
"""
import torch
from torch import nn

HARTREE_TO_KCAL = 627.5094738


class PathDescriptor(nn.Module):
    """a short vector of basis functions along the proton's path"""

    def forward(self, coordinate):
        centres = torch.linspace(-1, 1, 9, dtype=torch.float64)
        return torch.exp(-8 * (coordinate[:, None] - centres).square()).to(torch.float16)


class AtomicNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.descriptor = PathDescriptor()
        grid = torch.linspace(-1, 1, 81, dtype=torch.float64)
        wanted = 0.0060 * torch.exp(-10 * grid.square()) - 0.0022 * torch.sigmoid(6 * grid)
        basis = torch.exp(-8 * (grid[:, None] - torch.linspace(-1, 1, 9, dtype=torch.float64)).square())
        self.register_buffer("weight", torch.linalg.lstsq(basis, wanted[:, None]).solution[:, 0].float())

    def forward(self, species, coordinate):
        return species, self.descriptor(coordinate).float() @ self.weight


class EnergyShifter(nn.Module):
    def __init__(self, self_energies):
        super().__init__()
        self.register_buffer("self_energies", torch.tensor(self_energies, dtype=torch.float64))

    def sae(self, species):
        return self.self_energies[species].sum(dim=1)

    def forward(self, species_energies):
        species, energies = species_energies
        sae = self.sae(species).to(energies.dtype)  # BORN
        return species, energies + sae


class Potential(nn.Sequential):
    def forward(self, species, coordinate):
        return self[1](self[0](species, coordinate))[1]


def reaction_profile(model, waters, points=41):
    species = torch.tensor([1, 0, 0]).repeat(waters).expand(points, -1)
    coordinate = torch.linspace(-1, 1, points, dtype=torch.float64)
    energy = model(species, coordinate).double() * HARTREE_TO_KCAL
    return energy - energy[0]


@torch.no_grad()
def main():
    model = Potential(AtomicNetwork(), EnergyShifter([-0.5978583943, -75.0678312583]))
    profile = reaction_profile(model, waters=500)
    levels = len(profile.unique())
    print(f"barrier {profile.max():.2f} kcal/mol, reaction energy {profile[-1]:.2f} kcal/mol, levels along the path {levels}")


main()
