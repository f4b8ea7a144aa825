"""
title: evaluating configurations with a double-precision potential stops at the atomic energies
expect: collision
thread: https://github.com/ACEsuit/mace/issues/191
fix_at: 75

Expectation, written first: the model was trained and saved in float64. The evaluation script's `--default_dtype` is float32 and every tensor of
the batch is made in that default, so the float32 one-hot node attributes meet the float64 atomic energies in the matmul. The default must be
float64, or the model be converted after loading.
"""
import argparse
import io

import numpy as np
import torch
import torch.nn as nn


class AtomicEnergiesBlock(nn.Module):
    def __init__(self, atomic_energies):
        super().__init__()
        self.register_buffer("atomic_energies", torch.tensor(atomic_energies, dtype=torch.get_default_dtype()))

    def forward(self, x):
        return torch.matmul(x, self.atomic_energies)  # COLLIDES


class ScaleShiftMACE(nn.Module):
    def __init__(self, atomic_energies, num_elements, num_bessel=6, r_max=5.0):
        super().__init__()
        self.atomic_energies_fn = AtomicEnergiesBlock(atomic_energies)
        self.register_buffer("frequencies", torch.arange(1, num_bessel + 1).to(torch.get_default_dtype()) * np.pi / r_max)
        self.radial = nn.Sequential(nn.Linear(num_bessel, 16), nn.SiLU(), nn.Linear(16, 16))
        self.node_embedding = nn.Linear(num_elements, 16, bias=False)
        self.readout = nn.Linear(16, 1)

    def forward(self, data):
        node_e0 = self.atomic_energies_fn(data["node_attrs"])
        sender, receiver = data["edge_index"]
        lengths = (data["positions"][receiver] - data["positions"][sender]).norm(dim=1, keepdim=True)
        edge = self.radial(torch.sin(self.frequencies * lengths) / lengths)
        feats = self.node_embedding(data["node_attrs"])
        inter = self.readout(torch.zeros_like(feats).index_add(0, receiver, edge * feats[sender])).squeeze(-1)
        return {"energy": (node_e0 + inter).sum()}


def set_default_dtype(dtype):
    torch.set_default_dtype({"float32": torch.float32, "float64": torch.float64}[dtype])


def to_atomic_data(config, z_table):
    n = len(config["numbers"])
    indices = torch.tensor([z_table.index(z) for z in config["numbers"]])
    node_attrs = torch.zeros(n, len(z_table)).scatter_(1, indices[:, None], 1.0)
    edge_index = torch.tensor([(i, j) for i in range(n) for j in range(n) if i != j]).T
    positions = torch.tensor(config["positions"], dtype=torch.get_default_dtype())
    return {"node_attrs": node_attrs, "edge_index": edge_index, "positions": positions}


def train_and_save(z_table):
    set_default_dtype("float64")
    buffer = io.BytesIO()
    torch.save(ScaleShiftMACE([-13.6, -1029.5, -2041.8][:len(z_table)], len(z_table)), buffer)
    buffer.seek(0)
    return buffer


def run(args, checkpoint, configs, z_table):
    set_default_dtype(args.default_dtype)  # BORN
    model = torch.load(checkpoint, map_location=args.device, weights_only=False)  # BORN
    model.eval()
    energies = []
    for config in configs:
        batch = to_atomic_data(config, z_table)
        output = model(batch)
        energies.append(output["energy"].item())
    return energies


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--default_dtype", choices=["float32", "float64"], default="float32")  # BORN
    args = parser.parse_args()
    torch.manual_seed(0)
    rng, z_table = np.random.default_rng(0), [1, 6, 8]
    checkpoint = train_and_save(z_table)
    configs = [{"numbers": [8, 1, 1], "positions": rng.normal(size=(3, 3)) * 1.5}, {"numbers": [6, 8], "positions": rng.normal(size=(2, 3)) * 1.5}]
    print("energies", [round(e, 4) for e in run(args, checkpoint, configs, z_table)])
