"""
title: torsion profile of a large molecule comes in steps: the self energies are added in the float32 of the network
expect: silent:downcast|precision-loss|cancellation
thread: https://github.com/aiqm/torchani/issues/199
measured: barrier 1.5320 kcal/mol, distinct energies 6 of 37; mean thermal energy 0.4218 kcal/mol, largest jump 0.3064
widened: barrier 1.5400 kcal/mol, distinct energies 19 of 37; mean thermal energy 0.3903 kcal/mol, largest jump 0.3743
innocent: barrier 1.5320 kcal/mol, distinct energies 6 of 37; mean thermal energy 0.4218 kcal/mol, largest jump 0.3064
suspect: 29 half descriptor: bounded (cosines rounded by 0.05%, before the barrier scales them)

Expectation, written first: EnergyShifter casts the sum of atomic self energies (thousands of Hartree) to the dtype of the energies and
    adds there; float32 has steps of half a millihartree at 5000, a good part of a kcal/mol. The half precision descriptor looks worse,
    but it rounds cosines by 0.05% before the barrier scales them.
"""
import math
import torch
from torch import nn

HARTREE_TO_KCAL = 627.5094738
SELF_ENERGIES = {1: -0.600952980000, 6: -38.08316124, 7: -54.70775770, 8: -75.19446356, 16: -398.1577125}


class TorsionNetwork(nn.Module):
    def __init__(self, barrier_kcal=1.4):
        super().__init__()
        self.barrier = barrier_kcal / HARTREE_TO_KCAL

    def forward(self, phi):
        descriptor = torch.stack([torch.cos(3 * phi), torch.cos(phi)], 1)
        descriptor = descriptor.to(torch.float16).float()
        return 0.5 * self.barrier * (1 + descriptor[:, 0]) + 0.1 * self.barrier * (1 - descriptor[:, 1])


class EnergyShifter(nn.Module):
    def __init__(self, self_energies):
        super().__init__()
        self.table = self_energies

    def sae(self, species):
        return torch.tensor([math.fsum(self.table[z] for z in mol) for mol in species], dtype=torch.float64)

    def forward(self, species, energies):
        sae = self.sae(species).to(energies.dtype)  # BORN
        return energies + sae  # BORN


class ANIModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.network, self.shifter = TorsionNetwork(), EnergyShifter(SELF_ENERGIES)

    def forward(self, species, phi):
        return self.shifter(species, self.network(phi))


molecule = [6] * 60 + [1] * 80 + [7] * 14 + [8] * 18 + [16] * 2
phi = torch.linspace(-math.pi, math.pi, 37)
model = ANIModel()
energies = model([molecule] * len(phi), phi)
relative = (energies - energies.min()).double() * HARTREE_TO_KCAL
weights = torch.softmax(-relative / 0.593, 0)
print(f"barrier {relative.max():.4f} kcal/mol, distinct energies {len(relative.unique())} of {len(phi)}")
print(f"mean thermal energy {(weights * relative).sum():.4f} kcal/mol, largest jump {relative.diff().abs().max():.4f}")
