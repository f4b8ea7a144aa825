"""
title: the element numbers of a crystal graph are stored in the float dtype and reach an embedding
expect: collision
thread: https://github.com/materialyzeai/matgl/issues/641
fix_at: 17, 18, 44, 59

Expectation, written first: the converter puts every array of a structure through one helper that makes floats, the
element index with them; an embedding takes Long or Int only. Cause: the helper's use for node_type.
"""
import numpy as np
import torch
from torch import nn

FLOAT = torch.float32


def as_tensor(array, dtype=FLOAT):
    return torch.as_tensor(np.asarray(array), dtype=dtype)  # BORN


class Structure:
    def __init__(self, lattice, species, coords):
        self.lattice, self.species, self.coords = np.asarray(lattice), list(species), np.asarray(coords)


class Converter:
    def __init__(self, elements, cutoff):
        self.elements, self.cutoff = elements, cutoff

    def graph(self, structure):
        cart = structure.coords @ structure.lattice
        shifts = np.array([[i, j, k] for i in (-1, 0, 1) for j in (-1, 0, 1) for k in (-1, 0, 1)]) @ structure.lattice
        src, dst, dist = [], [], []
        for i, a in enumerate(cart):
            for j, b in enumerate(cart):
                d = np.linalg.norm(b + shifts - a, axis=1)
                for value in d[(d > 1e-6) & (d < self.cutoff)]:
                    src.append(i), dst.append(j), dist.append(value)
        z = [self.elements.index(s) for s in structure.species]
        return {
            "src": torch.tensor(src),
            "dst": torch.tensor(dst),
            "bond_dist": as_tensor(dist),
            "node_type": as_tensor(z),  # BORN
        }


class MEGNet(nn.Module):
    def __init__(self, elements, width=16, gaussians=12, cutoff=5.0):
        super().__init__()
        self.converter = Converter(elements, cutoff)
        self.embedding = nn.Embedding(len(elements), width)
        self.register_buffer("centres", torch.linspace(0, cutoff, gaussians))
        self.edge = nn.Linear(gaussians, width)
        self.update = nn.Sequential(nn.Linear(2 * width, width), nn.Softplus())
        self.out = nn.Linear(width, 1)

    def forward(self, g):
        v = self.embedding(g["node_type"])  # COLLIDES
        e = self.edge(torch.exp(-((g["bond_dist"][:, None] - self.centres) ** 2)))
        message = torch.zeros_like(v).index_add(0, g["dst"], v[g["src"]] * e) / len(e)
        return self.out(self.update(torch.cat([v, message], dim=1)).mean(0))

    def predict_structure(self, structure):
        return self(self.converter.graph(structure)).item()


def main():
    torch.manual_seed(0)
    model = MEGNet(["Na", "Cl", "Si"])
    salt = Structure(np.eye(3) * 4.1, ["Na", "Cl"], [[0, 0, 0], [0.5, 0.5, 0.5]])
    silicon = Structure(np.eye(3) * 3.9, ["Si"], [[0, 0, 0]])
    print([round(model.predict_structure(s), 2) for s in (salt, silicon)])


main()
