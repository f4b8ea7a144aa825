"""
title: energies of the dataset are cut from float64 to float32 for training
expect: clean
thread: https://github.com/choderalab/modelforge/pull/63
measured: largest total -1581902 kJ/mol labels mean 0.000 std 1.000 / largest error after the round trip 0.00 kJ/mol
suspect: 56 negligible (the self energies are taken off in float64 first, what is cut is of the order of 1)

Expectation, written first: total energies near -1e5 kJ/mol are offset by the atomic self energies and normalised in float64;
float32 sees only numbers near 1 with seven digits. Adding the offset back in float64 recovers the totals to well under
the printed 0.01 kJ/mol.
"""
from dataclasses import dataclass

import torch

SELF_ENERGIES = {1: -1313.4668615546, 6: -99366.70745535441, 8: -197082.0671774158}


@dataclass
class EnergyStatistics:
    mean: torch.Tensor
    stddev: torch.Tensor


class QM9Dataset:
    def __init__(self, n, seed):
        generator = torch.Generator().manual_seed(seed)
        self.numbers = torch.tensor([1, 6, 8])[torch.randint(0, 3, (n, 9), generator=generator)]
        table = torch.zeros(10, dtype=torch.float64)
        for z, e in SELF_ENERGIES.items():
            table[z] = e
        self.table = table
        bond = -350 + 60 * torch.randn(n, generator=generator, dtype=torch.float64)
        self.E = self.offset() + 9 * bond

    def offset(self):
        return self.table[self.numbers].sum(dim=1)


class TorchDataModule:
    def __init__(self, dataset, remove_self_energies=True, normalize=True):
        self.dataset = dataset
        self.remove_self_energies, self.normalize = remove_self_energies, normalize
        self.stats = None

    def prepare_data(self):
        energies = self.dataset.E
        if self.remove_self_energies:
            energies = energies - self.dataset.offset()
        if self.normalize:
            self.stats = EnergyStatistics(energies.mean(), energies.std())
            energies = (energies - self.stats.mean) / self.stats.stddev
        return self.to_training_dtype(energies)

    def to_training_dtype(self, energies):
        return energies.to(torch.float32)

    def total_energy(self, predicted):
        return predicted.double() * self.stats.stddev + self.stats.mean + self.dataset.offset()


class PerfectPotential:
    def __call__(self, labels):
        return labels


def main():
    data = TorchDataModule(QM9Dataset(n=400, seed=63))
    labels = data.prepare_data()
    predicted = PerfectPotential()(labels)
    total = data.total_energy(predicted)
    error = (total - data.dataset.E).abs().max().item()
    print(f"largest total {data.dataset.E.min().item():.0f} kJ/mol labels mean {abs(labels.mean().item()):.3f} std {labels.std():.3f}")
    print(f"largest error after the round trip {error:.2f} kJ/mol")


if __name__ == "__main__":
    main()
