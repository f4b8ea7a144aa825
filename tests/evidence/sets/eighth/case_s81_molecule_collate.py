"""
title: merging molecule graphs into one batch: shifting the edge lists by node offsets
expect: collision
thread: https://github.com/lrjconan/GRAN/issues/4

Expectation, written first: the offsets are made by joining torch.zeros(1)
(float32 by default) with an int64 cumulative sum, so the whole offset vector becomes
float32; the in-place shift of an int64 edge list then refuses (result type Float).
The BORN line is the factory that should say dtype=torch.long; nothing else is wrong.
"""
from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Molecule:
    charges: torch.Tensor
    bonds: torch.Tensor

    @property
    def num_atoms(self):
        return self.charges.shape[0]


def random_molecule(n, gen):
    src = torch.randint(0, n, (2 * n,), generator=gen)
    dst = torch.randint(0, n, (2 * n,), generator=gen)
    charges = torch.randint(1, 9, (n,), generator=gen)
    return Molecule(charges, torch.stack([src, dst]))


class GraphBatcher:
    """Joins several molecules into one disconnected graph."""

    def __init__(self, molecules):
        self.molecules = molecules

    def offsets(self):
        sizes = torch.tensor([m.num_atoms for m in self.molecules])
        first = torch.zeros(1)  # BORN
        return torch.cat([first, sizes.cumsum(0)[:-1]])

    def merge(self):
        offsets = self.offsets()
        charges = torch.cat([m.charges for m in self.molecules])
        bonds = [m.bonds.clone() for m in self.molecules]
        for i in range(len(bonds)):
            bonds[i] += offsets[i]  # COLLIDES
        owner = torch.repeat_interleave(
            torch.arange(len(self.molecules)),
            torch.tensor([m.num_atoms for m in self.molecules]))
        return charges, torch.cat(bonds, dim=1), owner


class SumPoolNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.embed = nn.Embedding(10, width)
        self.mix = nn.Linear(width, width)
        self.head = nn.Linear(width, 1)

    def forward(self, charges, bonds, owner, count):
        h = self.embed(charges)
        msg = torch.zeros_like(h).index_add(0, bonds[1], self.mix(h)[bonds[0]])
        pooled = torch.zeros(count, h.shape[1]).index_add(0, owner, torch.relu(h + msg))
        return self.head(pooled).squeeze(-1)


def main():
    gen = torch.Generator().manual_seed(3)
    torch.manual_seed(3)
    mols = [random_molecule(n, gen) for n in (4, 7, 5)]
    charges, bonds, owner = GraphBatcher(mols).merge()
    net = SumPoolNet()
    energy = net(charges, bonds, owner, len(mols))
    print("energies", [round(v, 3) for v in energy.tolist()])


if __name__ == "__main__":
    main()
