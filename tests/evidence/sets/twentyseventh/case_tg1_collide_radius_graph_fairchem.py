"""
title: Padded neighbour buffers of the radius graph under float64 inference
expect: collision
thread: https://github.com/facebookresearch/fairchem/pull/2184
fix_at: (none beside the marked)

Expectation, written first: the calculator converts positions and cell to float64 for dynamics, but the padded
buffers of the neighbour list are made at the default dtype. Writing the double displacements to them by
advanced indexing raises, as index_put does not cast.
"""
import torch
import torch.nn as nn


def biknn_radius_graph(pos, cell, cutoff, max_neighbors):
    inv = torch.linalg.inv(cell)
    delta = pos[None, :] - pos[:, None]
    frac = delta @ inv
    delta = (frac - frac.round()) @ cell
    dist = delta.norm(dim=-1).masked_fill(torch.eye(len(pos), dtype=torch.bool), float("inf"))
    order = dist.argsort(dim=1)[:, :max_neighbors]
    keep = dist.gather(1, order) < cutoff
    src, slot = keep.nonzero(as_tuple=True)
    dst = order[src, slot]
    disp, env = delta[src, dst], envelope(dist[src, dst], cutoff)

    padded_disp = torch.zeros(len(pos), max_neighbors, 3)  # BORN
    padded_env = torch.zeros(len(pos), max_neighbors, dtype=disp.dtype)
    padded_index = torch.full((len(pos), max_neighbors), -1, dtype=torch.long)
    padded_disp[src, slot] = disp  # COLLIDES
    padded_env[src, slot] = env
    padded_index[src, slot] = dst
    return padded_disp, padded_env, padded_index


def envelope(dist, cutoff):
    x = dist / cutoff
    return 1 - 6 * x ** 5 + 15 * x ** 4 - 10 * x ** 3


class AllScAIPBackbone(nn.Module):
    def __init__(self, num_elements=10, hidden=16, cutoff=4.0, max_neighbors=6):
        super().__init__()
        self.cutoff, self.max_neighbors = cutoff, max_neighbors
        self.atomic_embedding = nn.Embedding(num_elements, hidden)
        self.edge_mlp = nn.Sequential(nn.Linear(hidden + 1, hidden), nn.SiLU(), nn.Linear(hidden, hidden))
        self.energy = nn.Linear(hidden, 1)

    def forward(self, data):
        disp, env, index = biknn_radius_graph(data["pos"], data["cell"], self.cutoff, self.max_neighbors)
        h = self.atomic_embedding(data["atomic_numbers"])
        mask = (index >= 0).unsqueeze(-1)
        dist = (disp.square().sum(dim=-1, keepdim=True) + 1e-12).sqrt()
        message = self.edge_mlp(torch.cat([h[index.clamp(min=0)], dist], dim=-1)) * env.unsqueeze(-1)
        h = h + (message * mask).sum(dim=1)
        return self.energy(h).sum()


class InferenceSettings:
    def __init__(self, base_precision_dtype=torch.float32):
        self.base_precision_dtype = base_precision_dtype


class FAIRChemCalculator:
    def __init__(self, model, settings):
        self.dtype = settings.base_precision_dtype
        self.model = model.to(self.dtype).eval()

    def calculate(self, atoms):
        pos = atoms["positions"].to(self.dtype).requires_grad_(True)
        data = {"pos": pos, "cell": atoms["cell"].to(self.dtype), "atomic_numbers": atoms["numbers"]}
        energy = self.model(data)
        forces = -torch.autograd.grad(energy, pos)[0]
        return energy.item(), forces


def main():
    torch.manual_seed(2184)
    atoms = {"positions": torch.rand(12, 3) * 7, "cell": torch.eye(3) * 7, "numbers": torch.randint(1, 9, (12,))}
    model = AllScAIPBackbone()
    energy, forces = FAIRChemCalculator(model, InferenceSettings()).calculate(atoms)
    print("fp32 energy", round(energy, 4), "max force", round(forces.abs().max().item(), 4))
    energy, forces = FAIRChemCalculator(model, InferenceSettings(torch.float64)).calculate(atoms)
    print("fp64 energy", round(energy, 4), "max force", round(forces.abs().max().item(), 4))


if __name__ == "__main__":
    main()
