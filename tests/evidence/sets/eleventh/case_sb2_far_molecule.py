"""
title: the graph converter of a force field takes positions as FloatTensor, far from the origin
expect: silent:precision-loss|downcast
thread: https://github.com/microsoft/mattersim/issues/171
measured: energy after the move differs by 0.0394 meV, forces by up to 94.9%
widened: energy after the move differs by 0.0000 meV, forces by up to 0.0%

Expectation, written first: the calculator is float64, but the converter has rounded the positions to float32 first;
at 20000 angstrom the steps are two milliangstrom, and forces by differences are noise.
"""
import math

import torch


class GraphConverter:
    def __init__(self, cutoff=6.0):
        self.cutoff = cutoff

    def convert(self, positions):
        pos = torch.FloatTensor(positions)  # BORN
        dist = torch.cdist(pos, pos, compute_mode="donot_use_mm_for_euclid_dist")
        src, dst = ((dist < self.cutoff) & (dist > 0)).nonzero(as_tuple=True)
        return {"atom_pos": pos, "edge_index": torch.stack([src, dst])}


class PairCalculator:
    def __init__(self, dtype=torch.float64, epsilon=0.0104, sigma=3.4):
        self.dtype, self.epsilon, self.sigma = dtype, epsilon, sigma
        self.converter = GraphConverter()

    def energy(self, positions):
        graph = self.converter.convert(positions)
        pos = graph["atom_pos"].to(self.dtype)
        i, j = graph["edge_index"]
        r = (pos[i] - pos[j]).norm(dim=1)
        s6 = (self.sigma / r) ** 6
        return 0.5 * (4 * self.epsilon * (s6 ** 2 - s6)).sum().item()

    def numerical_force(self, positions, atom, axis, h=1e-3):
        moved = [list(p) for p in positions]
        moved[atom][axis] += h
        up = self.energy(moved)
        moved[atom][axis] -= 2 * h
        return -(up - self.energy(moved)) / (2 * h)


def ring(n, radius, centre):
    return [[centre[0] + radius * math.cos(2 * math.pi * k / n),
             centre[1] + radius * math.sin(2 * math.pi * k / n),
             centre[2] + 0.3 * (k % 3)] for k in range(n)]


def main():
    calc = PairCalculator()
    near, far = ring(8, 4.6, (0, 0, 0)), ring(8, 4.6, (20003.1, 20001.7, 19999.4))
    gap = 0.0
    biggest = 0.0
    for atom in range(8):
        a, b = calc.numerical_force(near, atom, 0), calc.numerical_force(far, atom, 0)
        gap, biggest = max(gap, abs(a - b)), max(biggest, abs(a))
    shift = abs(calc.energy(near) - calc.energy(far)) * 1000
    print(f"energy after the move differs by {shift:.4f} meV, forces by up to {100 * gap / biggest:.1f}%")


main()
