"""
title: a multiresolution hash grid multiplies its corners with large primes in int32
expect: clean
thread: https://github.com/NVlabs/tiny-cuda-nn/issues/151
measured: wrong slots 0, misfit 0.0000 of the variance

Expectation, written first: the products wrap round, as they are meant to; the table size is a power of two, so only
the low bits count and they are those of the exact product. The slots agree with Python's integers and the field fits.
"""
import torch
from torch import nn

PRIMES = (1, 2654435761, 805459861)


def signed(p):
    return p - 2**32 if p >= 2**31 else p


class HashGrid(nn.Module):
    def __init__(self, levels=4, features=2, log2_size=9, base=32, growth=4.0):
        super().__init__()
        self.size = 2**log2_size
        self.scales = [base * growth**k for k in range(levels)]
        self.tables = nn.Parameter(torch.empty(levels, self.size, features).uniform_(-1e-1, 1e-1))
        self.register_buffer("primes", torch.tensor([signed(p) for p in PRIMES], dtype=torch.int32))
        corners = torch.tensor([[i, j, k] for i in (0, 1) for j in (0, 1) for k in (0, 1)], dtype=torch.int32)
        self.register_buffer("corners", corners)

    def slots(self, cells):
        h = cells.to(torch.int32) * self.primes
        h = h[..., 0] ^ h[..., 1] ^ h[..., 2]
        return h & (self.size - 1)

    def forward(self, x):
        out = []
        for table, scale in zip(self.tables, self.scales):
            p = x * scale
            low = p.floor()
            w = (p - low)[:, None]
            cells = low.to(torch.int32)[:, None] + self.corners
            weight = torch.where(self.corners.bool(), w, 1 - w).prod(-1)
            out.append((table[self.slots(cells)] * weight[..., None]).sum(1))
        return torch.cat(out, -1)


def exact(cell, size):
    h = 0
    for c, p in zip(cell, PRIMES):
        h ^= (c * p) & 0xFFFFFFFF
    return h % size


def main():
    torch.manual_seed(17)
    grid = HashGrid()
    net = nn.Sequential(grid, nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
    opt = torch.optim.Adam(net.parameters(), lr=1e-2)
    x = torch.rand(64, 3)
    density = torch.sin(9 * x).prod(-1, keepdim=True)
    for _ in range(150):
        loss = (net(x) - density).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    cells = torch.randint(0, 2048, (400, 3))
    wrong = sum(a != exact(c, grid.size) for a, c in zip(grid.slots(cells).tolist(), cells.tolist()))
    print(f"wrong slots {wrong}, misfit {loss.item() / density.var().item():.4f} of the variance")


main()
