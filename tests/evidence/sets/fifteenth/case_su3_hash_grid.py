"""
title: a multiresolution hash grid multiplies its coordinates by large primes in int32 and masks the result
expect: clean
thread: https://github.com/NVlabs/tiny-cuda-nn/issues/151
measured: slot checksum 8379992, loss 0.0239
float64: slot checksum 8379992, loss 0.0239 (the hash in int64 and everything else in float64)

Expectation, written first: the products wrap around in int32, on purpose; the table size is a power of two and the
mask keeps only low bits, which two's complement multiplication and XOR give exactly. Same slots as with wide integers.
"""
import torch
from torch import nn

WIDE, REAL = torch.int32, torch.float32
PRIMES = (1, 2654435761 - (1 << 32), 805459861)


def hash_slots(cells, bits):
    mixed = torch.zeros_like(cells[..., 0])
    for axis, prime in enumerate(PRIMES):
        mixed = mixed ^ (cells[..., axis] * torch.tensor(prime, dtype=WIDE))
    return mixed & ((1 << bits) - 1)


class HashLevel(nn.Module):
    def __init__(self, resolution, bits, features, gen):
        super().__init__()
        self.resolution, self.bits = resolution, bits
        start = torch.empty(1 << bits, features, dtype=torch.float64).uniform_(-1e-1, 1e-1, generator=gen)
        self.table = nn.Parameter(start.to(REAL))
        corners = torch.cartesian_prod(*[torch.arange(2, dtype=WIDE)] * 3)
        self.register_buffer("corners", corners)

    def slots(self, x):
        low = (x * self.resolution).floor()
        return hash_slots(low.to(WIDE)[:, None] + self.corners, self.bits), x * self.resolution - low

    def forward(self, x):
        slots, inside = self.slots(x)
        side = torch.where(self.corners.bool(), inside[:, None], 1 - inside[:, None])
        return (self.table[slots.long()] * side.prod(-1, keepdim=True)).sum(1)


class Field(nn.Module):
    def __init__(self, gen, levels=(16, 64, 1024, 65536)):
        super().__init__()
        self.levels = nn.ModuleList(HashLevel(r, 10, 2, gen) for r in levels)
        self.head = nn.Sequential(nn.Linear(2 * len(levels), 32), nn.ReLU(), nn.Linear(32, 1)).to(REAL)

    def forward(self, x):
        return self.head(torch.cat([level(x) for level in self.levels], -1)).squeeze(-1)


def scene(x):
    return torch.sin(6 * x[:, 0]) * torch.cos(4 * x[:, 1]) + x[:, 2]


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(1)
    field = Field(gen)
    points = torch.randint(0, 4096, (512, 3), generator=gen).to(REAL) / 4096
    target = scene(points)
    optimizer = torch.optim.Adam(field.parameters(), lr=1e-2)
    for _ in range(40):
        loss = (field(points) - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    total = sum(int(level.slots(points)[0].sum()) for level in field.levels)
    print(f"slot checksum {total}, loss {loss.item():.4f}")


main()
