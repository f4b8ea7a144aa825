"""
title: total energies lose their atomic references in float64 and are then stored in float32
expect: clean
thread: https://github.com/torchmd/torchmd-net/pull/275
measured: rounding below 0.1 meV: True, unexplained variance 0.00

Expectation, written first: the total energies need float64, and have it until the references are taken off; what is
left is a few eV, which float32 holds to a ten-millionth. The cast to float32 costs nothing that counts.
"""
from dataclasses import dataclass

import torch
from torch import nn

REFERENCES = {1: -13.587222780835477, 6: -1029.4889999855063, 7: -1484.9814568572233, 8: -2041.9816003861047}


@dataclass
class Molecule:
    numbers: torch.Tensor
    positions: torch.Tensor
    energy: float


class Atomref:
    def __init__(self, table):
        self.table = torch.zeros(10, dtype=torch.float64)
        for z, e in table.items():
            self.table[z] = e

    def __call__(self, numbers):
        return self.table[numbers].sum().item()


def pair_energy(numbers, positions):
    d = torch.cdist(positions, positions)[*torch.triu_indices(len(numbers), len(numbers), 1)]
    return (torch.exp(-2 * (d - 1.4)) - 2 * torch.exp(-(d - 1.4))).sum().item()


def sample(count, gen, atomref):
    out = []
    for _ in range(count):
        n = int(torch.randint(20, 40, (1,), generator=gen))
        numbers = torch.tensor([1, 6, 7, 8])[torch.randint(0, 4, (n,), generator=gen)]
        positions = 2.2 * torch.randn(n, 3, generator=gen, dtype=torch.float64)
        out.append(Molecule(numbers, positions, atomref(numbers) + pair_energy(numbers, positions)))
    return out


class MemDataset:
    """what the trainer sees: everything in single precision"""

    def __init__(self, molecules, atomref):
        relative = torch.tensor([m.energy - atomref(m.numbers) for m in molecules], dtype=torch.float64)
        self.y = relative.float()
        self.x = torch.stack([self.describe(m) for m in molecules]).float()

    def describe(self, m):
        d = torch.pdist(m.positions)
        centres = torch.linspace(0.5, 6, 16, dtype=torch.float64)
        return torch.exp(-4 * (d[:, None] - centres).square()).sum(0)


def main():
    gen = torch.Generator().manual_seed(50)
    atomref = Atomref(REFERENCES)
    molecules = sample(120, gen, atomref)
    data = MemDataset(molecules, atomref)
    total = [atomref(m.numbers) + y for m, y in zip(molecules, data.y.tolist())]
    worst = max(abs(t - m.energy) for t, m in zip(total, molecules))
    torch.manual_seed(50)
    mean, std = data.y.mean(), data.y.std()
    fit = nn.Linear(16, 1)
    opt = torch.optim.LBFGS(fit.parameters(), max_iter=200, line_search_fn="strong_wolfe")

    def closure():
        opt.zero_grad()
        loss = (fit(data.x / 10).squeeze(-1) - (data.y - mean) / std).square().mean()
        loss.backward()
        return loss

    opt.step(closure)
    print(f"rounding below 0.1 meV: {worst < 1e-4}, unexplained variance {closure().item():.2f}")


main()
