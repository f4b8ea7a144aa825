"""
title: node energies of a thousand atoms are summed in float32
expect: clean
thread: https://github.com/facebookresearch/fairchem/pull/1889
measured: energy per atom ['-2.180', '-2.160', '-2.196', '-2.116']
suspect: 28 negligible (a sum of about 2700 eV is off by 0.001 eV, a millionth of an eV per atom)

Expectation, written first: index_add_ in float32 over 1000 atoms has an error of some 1e-3 eV in the total, which is 1e-6
eV per atom and far below what is printed; the reference energies are added per atom count in float64.
"""
import torch
from torch import nn


class Backbone(nn.Module):
    def __init__(self, num_elements=90, dim=16):
        super().__init__()
        self.emb = nn.Embedding(num_elements, dim)
        self.net = nn.Sequential(nn.Linear(dim + 1, dim), nn.SiLU(), nn.Linear(dim, 1))

    def forward(self, data):
        edge = (data["pos"][data["src"]] - data["pos"][data["dst"]]).norm(dim=1)
        density = torch.zeros(len(data["z"])).index_add_(0, data["dst"], torch.exp(-edge))
        return self.net(torch.cat([self.emb(data["z"]), density[:, None]], dim=1)) + 2.7


def reduce_node_to_system(node_energy, batch, num_systems):
    energy = torch.zeros(num_systems, dtype=torch.float32)
    energy.index_add_(0, batch, node_energy.view(-1))
    return energy


class LinearReference:
    def __init__(self, num_elements):
        self.refs = -torch.linspace(1, 9, num_elements, dtype=torch.float64)

    def __call__(self, energy, z, batch):
        return energy.double().index_add_(0, batch, self.refs[z])


def make_system(n, n_systems, generator):
    batch = torch.arange(n * n_systems) // n
    src = torch.randint(0, n, (n * n_systems * 6,), generator=generator)
    dst = torch.randint(0, n, (n * n_systems * 6,), generator=generator)
    offset = torch.arange(n_systems).repeat_interleave(n * 6) * n
    return {"z": torch.randint(1, 90, (n * n_systems,), generator=generator),
            "pos": 10 * torch.rand(n * n_systems, 3, generator=generator),
            "src": src + offset, "dst": dst + offset, "batch": batch}


@torch.no_grad()
def main():
    torch.manual_seed(1889)
    generator = torch.Generator().manual_seed(3)
    data = make_system(1000, 4, generator)
    node = Backbone()(data)
    energy = reduce_node_to_system(node, data["batch"], 4)
    total = LinearReference(90)(energy, data["z"], data["batch"])
    print("energy per atom", [f"{v:.3f}" for v in (total / 1000).tolist()])


main()
