"""
title: Multi-resolution hash grid whose int32 products wrap on purpose
expect: clean
thread: https://github.com/mit-han-lab/torchsparse/pull/376

Expectation, written first.  Nothing is wrong.  A spatial hash multiplies the
cell coordinates by large primes and mixes them by xor; the products wrap
modulo 2^32 by design, the sign is removed by the mask of the table size, and
collisions are part of the method.  The field is fitted by gradient descent
through the table.
"""
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class HashLevel(nn.Module):
    PRIMES = (1, -1640531535, 805459861)  # 2654435761 as a signed 32-bit number

    def __init__(self, resolution, log2_size=12, features=2):
        super().__init__()
        self.resolution, self.mask = resolution, (1 << log2_size) - 1
        self.table = nn.Parameter(1e-2 * torch.randn(1 << log2_size, features))

    def slot(self, cell):
        key = cell[..., 0] * self.PRIMES[0]
        for axis in (1, 2):
            key = key ^ (cell[..., axis] * self.PRIMES[axis])
        return (key & self.mask).long()

    def forward(self, x):
        scaled = x * self.resolution
        base = scaled.floor()
        frac = scaled - base
        base = base.to(torch.int32)
        out = 0.0
        for corner in range(8):
            offset = torch.tensor([corner & 1, (corner >> 1) & 1, (corner >> 2) & 1], dtype=torch.int32)
            weight = torch.where(offset.bool(), frac, 1 - frac).prod(-1, keepdim=True)
            out = out + weight * self.table[self.slot(base + offset)]
        return out


class HashField(nn.Module):
    def __init__(self):
        super().__init__()
        self.levels = nn.ModuleList(HashLevel(r) for r in (8, 23, 64))
        self.mlp = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, x):
        return self.mlp(torch.cat([level(x) for level in self.levels], -1)).squeeze(-1)


def density(x):
    return torch.exp(-8 * (x - 0.5).pow(2).sum(-1)) + 0.2 * torch.sin(20 * x[..., 0])


if __name__ == "__main__":
    field = HashField()
    optimizer = torch.optim.Adam(field.parameters(), lr=1e-2)
    for _ in range(80):
        x = torch.rand(512, 3)
        loss = (field(x) - density(x)).pow(2).mean()
        optimizer.zero_grad(); loss.backward(); optimizer.step()
    x = torch.rand(2000, 3)
    with torch.no_grad():
        print(f"rms error {(field(x) - density(x)).pow(2).mean().sqrt():.4f}")
