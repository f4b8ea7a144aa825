"""
title: an interatomic potential that predicts in float32 and adds up its energies in float64
expect: clean
thread: https://github.com/facebookresearch/fairchem/issues/1317
measured: energy float64, forces float32; energies -2068.8201 -5113.6669 -10858.7856 and force norms as from a float64 model

Expectation, written first: the network is float32 and gives small per-atom energies; the element references (thousands of eV) are float64 and
the sum per system is taken in float64, deliberately. The differences of positions are taken before anything is rounded to float32. The
mixture of dtypes is intended and loses nothing.
"""
import torch
import torch.nn as nn


class AtomicDataBatch:
    def __init__(self, systems):
        self.pos = torch.cat([s["pos"] for s in systems])
        self.atomic_numbers = torch.cat([s["z"] for s in systems])
        self.batch = torch.cat([torch.full((len(s["z"]),), i) for i, s in enumerate(systems)])
        self.num_graphs = len(systems)
        same = self.batch[:, None] == self.batch[None, :]
        same.fill_diagonal_(False)
        self.edge_index = torch.nonzero(same).t()


class Backbone(nn.Module):
    def __init__(self, channels=24, num_basis=12, cutoff=6.0):
        super().__init__()
        self.embedding = nn.Embedding(20, channels)
        self.register_buffer("centers", torch.linspace(0.5, cutoff, num_basis))
        self.radial = nn.Sequential(nn.Linear(num_basis, channels), nn.SiLU(), nn.Linear(channels, channels))
        self.energy_block = nn.Sequential(nn.Linear(channels, channels), nn.SiLU(), nn.Linear(channels, 1))

    def forward(self, z, edge_vec, edge_index):
        dist = edge_vec.norm(dim=1, keepdim=True)
        edge = self.radial(torch.exp(-4.0 * (dist - self.centers) ** 2))
        x = self.embedding(z)
        x = x + torch.zeros_like(x).index_add(0, edge_index[1], edge * x[edge_index[0]])
        return self.energy_block(x).squeeze(1)


class MLIPPredictUnit:
    def __init__(self, model, references, dtype=torch.float32):
        self.model, self.dtype = model.to(dtype), dtype
        self.references = torch.tensor(references, dtype=torch.float64)

    def predict(self, batch):
        pos = batch.pos.clone().requires_grad_(True)
        edge_vec = pos[batch.edge_index[0]] - pos[batch.edge_index[1]]
        per_atom = self.model(batch.atomic_numbers, edge_vec.to(self.dtype), batch.edge_index)
        energy = torch.zeros(batch.num_graphs, dtype=torch.float64).index_add(0, batch.batch, per_atom.double())
        forces = -torch.autograd.grad(energy.sum(), pos)[0]
        reference = torch.zeros(batch.num_graphs, dtype=torch.float64).index_add(0, batch.batch, self.references[batch.atomic_numbers])
        return {"energy": (energy + reference).detach(), "forces": forces.to(self.dtype)}


def make_system(z, spread, generator, origin):
    pos = torch.randn(len(z), 3, generator=generator, dtype=torch.float64) * spread + origin
    return {"z": torch.tensor(z), "pos": pos}


def main():
    generator = torch.Generator().manual_seed(0)
    recipes = [([8, 1, 1], 1.2, 0.0), ([6, 8, 8], 1.5, 500.0), ([16, 1, 1], 1.4, 0.0)]
    systems = [make_system(z, spread, generator, origin) for z, spread, origin in recipes]
    references = [0.0] * 20
    references[1], references[6], references[8], references[16] = -13.587, -1029.863, -2041.840, -10832.265
    torch.manual_seed(0)
    unit = MLIPPredictUnit(Backbone(), references)
    out = unit.predict(AtomicDataBatch(systems))
    for key, value in out.items():
        print(f"{key}: {value.dtype}")
    print("energy", [round(e, 4) for e in out["energy"].tolist()])
    print("force norms", [round(f, 4) for f in out["forces"].norm(dim=1).tolist()][:4])


if __name__ == "__main__":
    main()
