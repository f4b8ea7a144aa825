"""
title: the spatial hash multiplies grid positions by large primes and wraps around on purpose
expect: clean
thread: https://github.com/NVlabs/tiny-cuda-nn/issues/151
measured: rows between 5 and 4094 distinct 873 | loss first 0.517 last 0.001
suspect: line 21 - innocent: intended wrap; the table size is a power of two, so only low bits are used

Expectation, written first: the product of a grid position and a prime leaves int32 and wraps modulo 2**32. The index
is then masked with table_size - 1, and the low bits of a wrapped product are those of the exact product. Every
position finds the same row as with 64-bit integers and the encoding learns its target. Nothing is lost.
"""
import torch
import torch.nn.functional as F
from torch import nn

PRIMES = (1, -1640531535, 805459861)


def fast_hash(pos_grid, table_size):
    primes = torch.tensor(PRIMES, dtype=pos_grid.dtype)
    product = pos_grid * primes
    result = product[..., 0] ^ product[..., 1] ^ product[..., 2]
    return (result & (table_size - 1)).long()


class HashEncoding(nn.Module):
    def __init__(self, n_levels=4, log2_table=12, base=8, growth=1.6, width=2):
        super().__init__()
        self.table_size = 1 << log2_table
        self.scales = [int(base * growth ** level) for level in range(n_levels)]
        self.tables = nn.ParameterList(
            nn.Parameter(torch.randn(self.table_size, width) * 1e-2) for _ in range(n_levels)
        )

    def corners(self, x, scale):
        scaled = x * scale
        low = scaled.floor()
        frac = scaled - low
        offsets = torch.tensor([[i >> 2 & 1, i >> 1 & 1, i & 1] for i in range(8)])
        pos = low.to(torch.int32).unsqueeze(1) + offsets.to(torch.int32)
        weights = torch.where(offsets.bool(), frac.unsqueeze(1), 1 - frac.unsqueeze(1)).prod(-1)
        return pos, weights

    def forward(self, x):
        features = []
        for scale, table in zip(self.scales, self.tables):
            pos, weights = self.corners(x, scale)
            rows = table[fast_hash(pos, self.table_size)]
            features.append((rows * weights.unsqueeze(-1)).sum(1))
        return torch.cat(features, dim=-1)


def target(x):
    return torch.sin(4 * x[:, :1]) * x[:, 1:2] + x[:, 2:]


def main():
    torch.manual_seed(0)
    encoding = HashEncoding()
    head = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam([*encoding.parameters(), *head.parameters()], lr=1e-2)
    losses = []
    for _ in range(150):
        x = torch.rand(512, 3)
        loss = F.mse_loss(head(encoding(x)), target(x))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    rows = fast_hash(torch.randint(0, 400, (1000, 3), dtype=torch.int32), encoding.table_size)
    print(f"rows between {int(rows.min())} and {int(rows.max())} distinct {len(rows.unique())}")
    print(f"loss first {losses[0]:.3f} last {losses[-1]:.3f}")


if __name__ == "__main__":
    main()
