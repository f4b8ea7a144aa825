"""
title: centres of mass computed in double precision from float32 coordinates and handed back in float32
expect: clean
thread: https://github.com/MDAnalysis/mdanalysis/pull/1936
measured: torch.float32 gap below 1e-4 True gyration 405.946
suspect: 43 boundary

Expectation, written first: positions are float32 as in the trajectory, the weighted sums run in float64, and the final cast to float32
at the boundary of the periodic-wrapping code rounds once, to the accuracy the coordinates have anyway.
"""
import torch

class Universe:
    def __init__(self, n_residues=200, atoms_per_residue=12, box=800.0, seed=0):
        generator = torch.Generator().manual_seed(seed)
        centers = torch.rand(n_residues, 3, generator=generator) * box
        offsets = torch.randn(n_residues, atoms_per_residue, 3, generator=generator)
        self.positions = (centers.unsqueeze(1) + offsets).reshape(-1, 3)
        self.masses = torch.tensor([12.011, 1.008, 15.999, 14.007]).repeat(n_residues * atoms_per_residue // 4)
        self.resindices = torch.arange(n_residues).repeat_interleave(atoms_per_residue)
        self.dimensions = torch.tensor([box, box, box])

def apply_PBC(coordinates, box):
    if coordinates.dtype != torch.float32:
        raise TypeError(f"coordinates must be float32, got {coordinates.dtype}")
    return coordinates - torch.floor(coordinates / box) * box

class AtomGroup:
    def __init__(self, universe):
        self.universe = universe

    def center(self, weights, pbc=False, compound="group"):
        u = self.universe
        positions, weights = u.positions.double(), weights.double()
        if compound == "group":
            center = (positions * weights.unsqueeze(1)).sum(0, keepdim=True) / weights.sum()
        else:
            n = int(u.resindices.max()) + 1
            total = torch.zeros(n, dtype=torch.float64).index_add_(0, u.resindices, weights)
            summed = torch.zeros(n, 3, dtype=torch.float64).index_add_(0, u.resindices, positions * weights.unsqueeze(1))
            center = summed / total.unsqueeze(1)
        if pbc:
            return apply_PBC(center.to(torch.float32), u.dimensions)
        return center

    def center_of_mass(self, **kwargs):
        return self.center(self.universe.masses, **kwargs)

    def radius_of_gyration(self):
        delta = self.universe.positions.double() - self.center_of_mass()
        masses = self.universe.masses.double()
        return ((masses * delta.square().sum(1)).sum() / masses.sum()).sqrt().item()

def main():
    group = AtomGroup(Universe())
    residues = group.center_of_mass(pbc=True, compound="residues")
    exact = group.center_of_mass(compound="residues")
    wrapped = exact - torch.floor(exact / 800.0) * 800.0
    gap = (residues.double() - wrapped).abs().max().item()
    print(f"{residues.dtype} gap below 1e-4 {gap < 1e-4} gyration {group.radius_of_gyration():.3f}")

if __name__ == "__main__":
    main()
