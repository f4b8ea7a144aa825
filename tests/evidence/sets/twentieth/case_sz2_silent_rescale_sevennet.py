"""
title: per-atom energies are shifted and summed in float32, and the energy differences of a large cell disappear
expect: silent:precision-loss|cancellation|downcast
thread: https://github.com/MDIL-SNU/SevenNet/pull/326
measured: energy per atom -6962.9 eV ; strain 1e-04: +0.000 eV ; strain 2e-04: +0.000 eV ; strain 4e-04: +0.000 eV ; strain 8e-04: +0.000 eV
widened: energy per atom -6962.9 eV ; strain 1e-04: -0.102 eV ; strain 2e-04: -0.205 eV ; strain 4e-04: -0.409 eV ; strain 8e-04: -0.819 eV
innocent: energy per atom -6962.9 eV ; strain 1e-04: +0.000 eV ; strain 2e-04: +0.000 eV ; strain 4e-04: +0.000 eV ; strain 8e-04: +0.000 eV
suspect: 33 exact (2000 is a float16 number)

Expectation, written first: the rescaling adds a reference of about minus seven thousand eV to every atom in float32, where a step is half a thousandth,
and the sum over 2000 atoms is fourteen million, where a step is one eV; a strain that costs a fraction of an eV reads as zero or as whole
steps. The number of atoms is float16, near the end of its whole numbers, but 2000 is exact.
"""
import torch
from torch import nn


class SpeciesWiseRescale(nn.Module):
    def __init__(self, shift, scale, dtype=torch.float32):  # BORN
        super().__init__()
        self.register_buffer("shift", torch.tensor(shift, dtype=dtype))  # BORN
        self.register_buffer("scale", torch.tensor(scale, dtype=dtype))

    def forward(self, data):
        z = data["species"]
        data["atomic_energy"] = data["scaled_energy"] * self.scale[z] + self.shift[z]  # BORN
        return data


class AtomReduce(nn.Module):
    def forward(self, data):
        data["energy"] = data["atomic_energy"].sum()  # BORN
        count = torch.tensor(data["species"].numel(), dtype=torch.float16)
        data["energy_per_atom"] = data["energy"] / count.to(data["energy"].dtype)
        return data


class RadialNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(6, 12), nn.SiLU(), nn.Linear(12, 1))
        self.register_buffer("centers", torch.linspace(1.5, 3.5, 6))

    def forward(self, data):
        d = (data["pos"][1:] - data["pos"][:-1]).norm(dim=-1)
        rbf = torch.exp(-3 * (d[:, None] - self.centers) ** 2)
        rbf = torch.cat([rbf, rbf[:1]]) + torch.cat([rbf[-1:], rbf])
        data["scaled_energy"] = self.mlp(rbf).squeeze(-1)
        return data


class SevenNetCalculator:
    def __init__(self):
        torch.manual_seed(0)
        self.model = nn.Sequential(RadialNet(), SpeciesWiseRescale([-7031.7, -6894.3], [0.8, 1.1]), AtomReduce())

    @torch.no_grad()
    def get_energy(self, atoms):
        return self.model(dict(atoms))


def chain(n=2000, strain=0.0):
    g = torch.Generator().manual_seed(1)
    step = 2.4 + 0.1 * torch.rand(n, generator=g)
    pos = torch.zeros(n, 3)
    pos[:, 0] = (step * (1 + strain)).double().cumsum(0).float()
    return {"species": torch.arange(n) % 2, "pos": pos}


def main():
    calc = SevenNetCalculator()
    base = calc.get_energy(chain())
    print(f"energy per atom {base['energy_per_atom'].item():.1f} eV")
    for strain in (1e-4, 2e-4, 4e-4, 8e-4):
        energy = calc.get_energy(chain(strain=strain))["energy"]
        print(f"strain {strain:.0e}: {(energy - base['energy']).item():+.3f} eV")


main()
