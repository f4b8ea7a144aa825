"""
title: total energies of molecules are made single precision before the atomic references are taken off
expect: silent:precision-loss|downcast
thread: https://github.com/torchmd/torchmd-net/pull/275
measured: test error 20.81 meV, spread of the targets 33.5 meV
widened: test error 2.06 meV, spread of the targets 25.8 meV

Expectation, written first: totals of a million electronvolts have a float32 step of 0.06, as large as the formation
energies that are to be learned, so the fit keeps that as error. Atom numbers stored as int8 and counts in float16 are
small whole numbers and exact.
"""
import numpy as np
import torch
from torch import nn

REFERENCE = {1: -13.587222780835477, 6: -1029.4889999855063, 17: -12518.34, 53: -188270.4}


class MoleculeSet:
    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        self.kinds = np.array(sorted(REFERENCE))
        self.counts = rng.integers(1, 8, size=(n, len(self.kinds)))
        self.shape = rng.normal(size=(n, 6))
        formation = 0.02 * np.tanh(self.shape @ rng.normal(size=(6, 3))).sum(1)
        self.total = formation + self.counts @ np.array([REFERENCE[k] for k in self.kinds])

    def __len__(self):
        return len(self.total)

    def item(self, i):
        z = torch.tensor(np.repeat(self.kinds, self.counts[i]), dtype=torch.int8)
        energy = torch.tensor(self.total[i], dtype=torch.float32)  # BORN
        return z, torch.tensor(self.shape[i], dtype=torch.float32), energy


class AtomRef(nn.Module):
    def __init__(self):
        super().__init__()
        table = torch.zeros(64, dtype=torch.float64)
        for z, e in REFERENCE.items():
            table[z] = e
        self.register_buffer("table", table)

    def remove(self, z, energy):
        count = torch.zeros(64, dtype=torch.float16)
        count.index_add_(0, z.long(), torch.ones(len(z), dtype=torch.float16))
        return (energy.double() - (count.double() * self.table).sum()).float()


def prepare(dataset):
    ref, rows = AtomRef(), [dataset.item(i) for i in range(len(dataset))]
    return torch.stack([r[1] for r in rows]), torch.stack([ref.remove(r[0], r[2]) for r in rows])


def train(model, x, y, steps=300):
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        (model(x).squeeze(-1) - y).square().mean().backward()
        optimizer.step()


def main():
    torch.manual_seed(0)
    x, y = prepare(MoleculeSet(600, seed=3))
    mean, scale = y[:500].mean(), y[:500].std()
    model = nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 1))
    train(model, x[:500], (y[:500] - mean) / scale)
    with torch.no_grad():
        pred = model(x[500:]).squeeze(-1) * scale + mean
    print(f"test error {1000 * (pred - y[500:]).abs().mean():.2f} meV, spread of the targets {1000 * scale:.1f} meV")


main()
