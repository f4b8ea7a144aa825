"""
title: screening currents of a superconducting film: kernel from numpy, applied field in float32
expect: collision
thread: https://github.com/loganbvh/superscreen/pull/51
fix_at: 32

Expectation, written first: the kernel matrix is built by numpy in float64 and the
applied field by torch in float32; the linear solver does not promote: Expected A and B to
have the same dtype. BORN is the line that makes the field float32 while the solver's
operator is float64; float64 there mends it (the matrix could be cast down as well).
"""
import numpy as np
import torch


class Film:
    """Square film cut in small cells; the kernel couples the cells."""

    def __init__(self, cells=8, width=10.0, lam=2.0):
        x = (np.arange(cells) + 0.5) * width / cells
        xx, yy = np.meshgrid(x, x)
        self.sites = np.stack([xx.ravel(), yy.ravel()], axis=1)
        self.lam = lam
        self.area = (width / cells) ** 2

    def kernel(self):
        d = np.linalg.norm(self.sites[:, None] - self.sites[None], axis=2)
        np.fill_diagonal(d, 1.0)
        q = -1.0 / (4 * np.pi * d ** 3)
        np.fill_diagonal(q, 0.0)
        np.fill_diagonal(q, -q.sum(1) + 1.0 / self.area)
        return torch.from_numpy(q)


class Field:
    def __init__(self, strength, gradient):
        self.strength, self.gradient = strength, gradient

    def __call__(self, sites):
        pos = torch.tensor(sites, dtype=torch.float32)  # BORN
        return self.strength + self.gradient * pos[:, 0]


def solve_stream(film, field):
    matrix = film.kernel() * film.area + film.lam * torch.eye(len(film.sites), dtype=torch.float64)
    applied = field(film.sites)
    return torch.linalg.solve(matrix, -applied)  # COLLIDES


def magnetisation(film, stream):
    return stream.sum().item() * film.area


def main():
    film = Film()
    for gradient in (0.0, 0.02, 0.1):
        stream = solve_stream(film, Field(0.5, gradient))
        print("gradient %.2f moment %.4f" % (gradient, magnetisation(film, stream)))


if __name__ == "__main__":
    main()
