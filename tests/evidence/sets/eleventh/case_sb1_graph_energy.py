"""
title: energies of a molecule batch are summed in float64 from float32 node energies
expect: collision
thread: https://github.com/facebookresearch/fairchem/issues/1317
fix_at: 13, 44, 49, 50, 51

Expectation, written first: the task config asks for float64 energies, so the head allocates its sum in float64;
the node energies are float32 and index_add_ wants the same type on both sides.
"""
import torch
from torch import nn

TASKS = {"omol": {"energy_dtype": "float64", "rmsd": 3.2, "mean": -1.5},
         "omat": {"energy_dtype": "float32", "rmsd": 1.1, "mean": 0.0}}


class AtomicData(dict):
    @staticmethod
    def collate(items):
        batch = torch.cat([torch.full((len(d["pos"]),), i) for i, d in enumerate(items)])
        out = AtomicData({k: torch.cat([d[k] for d in items]) for k in items[0]})
        out["batch"], out["n"] = batch, len(items)
        return out


class Backbone(nn.Module):
    def __init__(self, hidden=16, elements=10):
        super().__init__()
        self.embed = nn.Embedding(elements, hidden)
        self.edge = nn.Sequential(nn.Linear(1, hidden), nn.SiLU())

    def forward(self, data):
        h = self.embed(data["z"])
        same = data["batch"][:, None] == data["batch"]
        src, dst = (same & ~torch.eye(len(h), dtype=torch.bool)).nonzero(as_tuple=True)
        r = (data["pos"][src] - data["pos"][dst]).norm(dim=1, keepdim=True)
        return h.index_add(0, dst, self.edge(torch.exp(-r)) * h[src])


class EnergyHead(nn.Module):
    def __init__(self, task, hidden=16):
        super().__init__()
        cfg = TASKS[task]
        self.dtype = getattr(torch, cfg["energy_dtype"])
        self.rmsd, self.mean = cfg["rmsd"], cfg["mean"]
        self.mlp = nn.Sequential(nn.Linear(hidden, hidden), nn.SiLU(), nn.Linear(hidden, 1))

    def forward(self, h, data):
        node = self.mlp(h).squeeze(-1)
        energy = torch.zeros(data["n"], dtype=self.dtype)  # BORN
        energy.index_add_(0, data["batch"], node)  # COLLIDES
        return energy * self.rmsd + self.mean


class Predictor:
    def __init__(self, task):
        torch.manual_seed(1)
        self.backbone, self.head = Backbone(), EnergyHead(task)

    def predict(self, data):
        data["pos"].requires_grad_()
        energy = self.head(self.backbone(data), data)
        (grad,) = torch.autograd.grad(energy.sum(), data["pos"])
        return {"energy": energy.detach(), "forces": -grad}


def molecule(n, gen):
    return {"pos": torch.randn(n, 3, generator=gen) * 1.5, "z": torch.randint(1, 10, (n,), generator=gen)}


gen = torch.Generator().manual_seed(0)
batch = AtomicData.collate([molecule(n, gen) for n in (3, 5, 4)])
print({k: (v.dtype, tuple(v.shape)) for k, v in Predictor("omol").predict(batch).items()})
