"""
title: the block of isolated atom energies registers float64 while the potential trains in float32
expect: collision
thread: https://github.com/yuanyue-liu-group/CP-MACE/pull/5
fix_at: 19, 22, 47

Expectation, written first: the energies come as a numpy array and the buffer is asked for in float64; the one-hot
attributes have the default dtype, and their product with the buffer is refused.
"""
import numpy as np
import torch
from torch import nn


class AtomicEnergiesBlock(nn.Module):
    def __init__(self, atomic_energies):
        super().__init__()
        assert atomic_energies.ndim == 1
        self.register_buffer("atomic_energies", torch.tensor(atomic_energies, dtype=torch.float64))  # BORN

    def forward(self, node_attrs):
        return torch.matmul(node_attrs, self.atomic_energies)  # COLLIDES


class RadialBasis(nn.Module):
    def __init__(self, cutoff=4.0, number=6):
        super().__init__()
        self.cutoff = cutoff
        self.register_buffer("k", torch.arange(1, number + 1) * torch.pi / cutoff)

    def forward(self, r):
        smooth = 0.5 * (1 + torch.cos(torch.pi * r / self.cutoff))
        return torch.sin(r[:, None] * self.k) / r[:, None] * smooth[:, None]


class Potential(nn.Module):
    def __init__(self, atomic_energies, species, hidden=16):
        super().__init__()
        self.species = species
        self.e0 = AtomicEnergiesBlock(atomic_energies)
        self.radial = RadialBasis()
        self.node = nn.Linear(species, hidden, bias=False)
        self.message = nn.Linear(6, hidden)
        self.readout = nn.Linear(hidden, 1)

    def node_attrs(self, kinds):
        return nn.functional.one_hot(kinds, self.species).to(torch.get_default_dtype())

    def forward(self, positions, kinds):
        dist = torch.cdist(positions, positions) + 10 * torch.eye(len(positions))
        src, dst = (dist < self.radial.cutoff).nonzero(as_tuple=True)
        attrs = self.node_attrs(kinds)
        h = self.node(attrs.to(self.node.weight.dtype))
        msg = self.message(self.radial(dist[src, dst])) * h[src]
        h = h.index_add(0, dst, msg)
        return (self.e0(attrs) + self.readout(h).squeeze(-1)).sum()


def main():
    torch.manual_seed(0)
    energies = np.array([-13.6, -1029.3, -2041.8])
    model = Potential(energies, species=3)
    positions = torch.rand(9, 3) * 5
    positions.requires_grad_()
    energy = model(positions, torch.randint(0, 3, (9,)))
    (grad,) = torch.autograd.grad(energy, positions)
    print(f"energy {energy.item():.2f}, largest force {grad.abs().max().item():.3f}")


main()
