"""
title: the graph converter builds positions as FloatTensor before the calculator's float64, and small displacements of a far cell vanish
expect: silent:precision-loss|downcast|round-trip
thread: https://github.com/ddmms/ml-peg/issues/786
measured: shift 0 A: force constants [6.835, 6.938, -0.042, 0.005] ; shift 1500 A: force constants [-0.0, -0.0, -0.0, -0.0]
widened: shift 0 A: force constants [6.835, 6.929, -0.042, 0.005] ; shift 1500 A: force constants [6.835, 6.929, -0.042, 0.005]
innocent: shift 0 A: force constants [6.835, 6.938, -0.042, 0.005] ; shift 1500 A: force constants [-0.0, -0.0, -0.0, -0.0]
suspect: 24 fits (atomic numbers end at 118)

Expectation, written first: convert() makes the positions float32 whatever dtype the calculator asked for; calculate() upcasts afterwards, too late.
With the cell pushed 1500 A away a float32 step is 1.2e-4 A, larger than the finite-difference displacement of 1e-5 A, so the force constant is zero
or a wild number, while the unshifted one is tolerable. Species are int8, which holds every element.
"""
import torch
from torch import nn


class GraphConverter:
    def __init__(self, cutoff=5.0):
        self.cutoff = cutoff

    def convert(self, numbers, positions):
        atom_pos = torch.FloatTensor(positions)  # BORN
        species = torch.tensor(numbers, dtype=torch.int8)
        i, j = torch.triu_indices(len(numbers), len(numbers), offset=1)
        return {"atom_pos": atom_pos, "species": species, "edge_index": torch.stack([i, j])}


class PairPotential(nn.Module):
    def __init__(self, n_species=90, depth=0.4, alpha=1.6):
        super().__init__()
        g = torch.Generator().manual_seed(0)
        self.radius = nn.Parameter(1.2 + 0.2 * torch.rand(n_species, generator=g))
        self.depth, self.alpha = depth, alpha

    def forward(self, graph):
        pos, z = graph["atom_pos"], graph["species"].long()
        i, j = graph["edge_index"]
        r = (pos[i] - pos[j]).norm(dim=-1)
        r0 = self.radius[z[i]] + self.radius[z[j]]
        return (self.depth * (1 - torch.exp(-self.alpha * (r - r0))) ** 2).sum()


class Calculator:
    def __init__(self, dtype="float64"):
        self.dtype = getattr(torch, dtype)
        self.converter = GraphConverter()
        self.model = PairPotential().to(self.dtype)

    def calculate(self, numbers, positions):
        graph = self.converter.convert(numbers, positions)
        graph["atom_pos"] = graph["atom_pos"].to(self.dtype).requires_grad_()
        energy = self.model(graph)
        (grad,) = torch.autograd.grad(energy, graph["atom_pos"])
        return energy.item(), -grad


def force_constant(calc, numbers, positions, atom, axis, h=1e-5):
    out = []
    for sign in (1, -1):
        moved = [list(p) for p in positions]
        moved[atom][axis] += sign * h
        out.append(calc.calculate(numbers, moved)[1][atom, axis])
    return -(out[0] - out[1]).item() / (2 * h)


def main():
    numbers = [6, 8, 14, 26]
    cell = [[0.0, 0.0, 0.0], [2.3, 0.1, 0.0], [0.2, 2.4, 0.3], [0.1, 0.4, 2.6]]
    calc = Calculator("float64")
    for shift in (0.0, 1500.0):
        positions = [[x + shift for x in p] for p in cell]
        k = [force_constant(calc, numbers, positions, a, 0) for a in range(4)]
        print(f"shift {shift:.0f} A: force constants", [round(v, 3) for v in k])


main()
