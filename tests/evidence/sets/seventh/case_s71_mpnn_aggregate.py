"""
title: Message passing under autocast adds bfloat16 messages into a float32 accumulator
expect: collision
thread: https://github.com/NVIDIA/apex/issues/455

Expectation, written first.  The molecule network runs under a bf16 autocast.
The message Linear returns bfloat16, the accumulator is allocated by
torch.zeros with the default dtype, and index_add_ wants both in one dtype.
Equally right: the line that makes the messages (the autocast Linear) and the
line that allocates the accumulator.  Either change mends it: zeros with the
messages' dtype, or messages.float().
"""
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


def molecules(n=24):
    g = torch.Generator().manual_seed(2)
    out = []
    for _ in range(n):
        atoms = int(torch.randint(5, 10, (), generator=g))
        z = torch.randint(0, 6, (atoms,), generator=g)
        pos = torch.randn(atoms, 3, generator=g) * 1.5
        src, dst = torch.nonzero((torch.cdist(pos, pos) < 2.5) & ~torch.eye(atoms, dtype=torch.bool)).T
        out.append((z, pos, src, dst, z.float().sum() * 0.1))
    return out


class Interaction(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.message = nn.Linear(2 * dim + 1, dim)
        self.update = nn.Linear(dim, dim)

    def forward(self, h, distance, src, dst):
        edge = torch.cat([h[src], h[dst], distance[:, None]], 1)
        messages = nn.functional.silu(self.message(edge))  # BORN
        aggregated = torch.zeros(h.size(0), messages.size(1))  # BORN
        aggregated.index_add_(0, dst, messages)  # COLLIDES
        return h + self.update(aggregated)


class EnergyModel(nn.Module):
    def __init__(self, dim=24, depth=2):
        super().__init__()
        self.embed = nn.Embedding(6, dim)
        self.interactions = nn.ModuleList(Interaction(dim) for _ in range(depth))
        self.readout = nn.Linear(dim, 1)

    def forward(self, z, pos, src, dst):
        distance = (pos[src] - pos[dst]).norm(dim=1)
        h = self.embed(z)
        for block in self.interactions:
            h = block(h, distance, src, dst)
        return self.readout(h).sum()


if __name__ == "__main__":
    model = EnergyModel()
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    for epoch in range(3):
        total = 0.0
        for z, pos, src, dst, energy in molecules():
            with torch.autocast("cpu", dtype=torch.bfloat16):
                predicted = model(z, pos, src, dst)
            loss = (predicted.float() - energy) ** 2
            opt.zero_grad(); loss.backward(); opt.step()
            total += loss.item()
    print(f"last epoch loss = {total / 24:.3f}")
