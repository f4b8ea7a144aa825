"""
title: a hash grid multiplies coordinates with large primes in int32 and a mixer works modulo 2**64 in int64
expect: clean
thread: https://github.com/NVlabs/tiny-cuda-nn/issues/151
measured: int32 right True, int64 right True, table filled 0.99, features (20000, 2)

Expectation, written first: the products wrap and are meant to (the author says so in the thread): the table size is a
power of two, and arithmetic modulo 2**32 or 2**64 keeps the low bits right. The indices equal those of Python's big
integers under the mask, and they fill the table evenly.
"""
import torch
from torch import nn

PRIMES = (1, 2654435761, 805459861)
GOLDEN = 0x9E3779B97F4A7C15


def signed(value, bits):
    return value - (1 << bits) if value >= 1 << (bits - 1) else value


def hash_int32(grid, size):
    primes = torch.tensor([signed(p, 32) for p in PRIMES], dtype=torch.int32)
    h = grid.to(torch.int32) * primes
    return (h[..., 0] ^ h[..., 1] ^ h[..., 2]) & (size - 1)


def mix_int64(ids):
    z = ids + signed(GOLDEN, 64)
    z = (z ^ ((z >> 30) & ((1 << 34) - 1))) * signed(0xBF58476D1CE4E5B9, 64)
    return z ^ ((z >> 27) & ((1 << 37) - 1))


class HashGrid(nn.Module):
    def __init__(self, size=1 << 12, dim=2, resolution=700):
        super().__init__()
        self.size, self.resolution = size, resolution
        self.table = nn.Embedding(size, dim)

    def index(self, points):
        return hash_int32((points * self.resolution).floor(), self.size)

    def forward(self, points):
        return self.table(self.index(points))


def python_hash(cell, size):
    out = 0
    for c, p in zip(cell, PRIMES):
        out ^= (c * p) & 0xFFFFFFFF
    return out & (size - 1)


def python_mix(i):
    full = (1 << 64) - 1
    z = (i + GOLDEN) & full
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & full
    return z ^ (z >> 27)


def main():
    torch.manual_seed(0)
    field = HashGrid()
    points = torch.rand(20000, 3)
    index = field.index(points)
    cells = (points[:500] * field.resolution).floor().long().tolist()
    same32 = index[:500].tolist() == [python_hash(c, field.size) for c in cells]
    ids = torch.randint(0, 1 << 40, (500,))
    same64 = mix_int64(ids).tolist() == [signed(python_mix(i), 64) for i in ids.tolist()]
    fill = (torch.bincount(index, minlength=field.size) > 0).float().mean().item()
    print(f"int32 right {same32}, int64 right {same64}, table filled {fill:.2f}, features {tuple(field(points).shape)}")


main()
