"""
title: relative conformer energies of the downloaded set are wrong by a good part of a kcal/mol
expect: silent:downcast|precision-loss
thread: https://github.com/openmm/spice-dataset/issues/55
measured: hexane: error 0.002 kcal/mol, distinct energies 37 of 50, bond 2.149 / dichlorohexane: error 0.016 kcal/mol, distinct energies 14 of 50, bond 2.149 / dibromohexane: error 0.079 kcal/mol, distinct energies 4 of 50, bond 2.149
widened: hexane: error 0.000 kcal/mol, distinct energies 50 of 50, bond 2.149 / dichlorohexane: error 0.000 kcal/mol, distinct energies 50 of 50, bond 2.149 / dibromohexane: error 0.000 kcal/mol, distinct energies 50 of 50, bond 2.149; innocent: hexane: error 0.002 kcal/mol, distinct energies 37 of 50, bond 2.149 / dichlorohexane: error 0.016 kcal/mol, distinct energies 14 of 50, bond 2.149 / dibromohexane: error 0.079 kcal/mol, distinct energies 4 of 50, bond 2.149
suspect: 47 negligible (bond lengths of a few bohr keep seven digits, printed are three)

Expectation, written first: the downloader stores the total DFT energy as float32. Near -5000 hartree a float32 spacing is
0.0005 hartree or 0.3 kcal/mol, the size of the differences between conformers. Remedy: float64 for energies (or store
them after the atomic references are taken off). The coordinates in float32 are fine.
"""
import torch

HARTREE_TO_KCAL = 627.509
ATOM_ENERGY = {1: -0.4987605100487341, 6: -37.87264507233593, 17: -460.1988762285739, 35: -2574.2451510945853}
ENERGY_DTYPE = torch.float32  # BORN


class QCArchive:
    """Stands for the server: double precision results of an optimisation."""

    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)

    def record(self, numbers, n_conformations):
        base = sum(ATOM_ENERGY[z] for z in numbers) - 1.37
        strain = 0.0016 * torch.rand(n_conformations, generator=self.generator, dtype=torch.float64)
        chain = torch.arange(len(numbers), dtype=torch.float64).unsqueeze(1) * torch.tensor([[2.1, 0.4, 0.2]])
        wiggle = 0.05 * torch.randn(n_conformations, len(numbers), 3, generator=self.generator, dtype=torch.float64)
        return {
            "numbers": numbers,
            "energies": [base + s for s in strain.tolist()],
            "conformations": list(chain + wiggle),
            "strain": strain,
        }


class Downloader:
    def __init__(self, archive):
        self.archive = archive
        self.hdf5 = {}

    def fetch(self, name, numbers, n_conformations=50):
        record = self.archive.record(numbers, n_conformations)
        energies = torch.tensor(record["energies"], dtype=ENERGY_DTYPE)  # BORN
        conformations = torch.stack(record["conformations"]).to(torch.float32)
        self.hdf5[name] = {
            "atomic_numbers": torch.tensor(numbers, dtype=torch.int16),
            "dft_total_energy": energies,
            "conformations": conformations,
        }
        return record["strain"] - record["strain"].mean()


def relative_energy(group):
    energies = group["dft_total_energy"].double()
    return (energies - energies.mean()) * HARTREE_TO_KCAL


def mean_bond(group):
    pos = group["conformations"]
    return (pos[:, 1:] - pos[:, :-1]).norm(dim=-1).mean().item()


def main():
    downloader = Downloader(QCArchive(seed=55))
    molecules = {
        "hexane": [6] * 6 + [1] * 14,
        "dichlorohexane": [6] * 6 + [1] * 12 + [17] * 2,
        "dibromohexane": [6] * 6 + [1] * 12 + [35] * 2,
    }
    for name, numbers in molecules.items():
        exact = downloader.fetch(name, numbers) * HARTREE_TO_KCAL
        group = downloader.hdf5[name]
        error = (relative_energy(group) - exact).abs().mean().item()
        levels = group["dft_total_energy"].unique().numel()
        print(f"{name}: error {error:.3f} kcal/mol, distinct energies {levels} of 50, bond {mean_bond(group):.3f}")


if __name__ == "__main__":
    main()
