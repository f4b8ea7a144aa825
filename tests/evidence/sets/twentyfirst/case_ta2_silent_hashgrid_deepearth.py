"""
title: the number of grid vertices wraps in int32, so the finest level indexes densely instead of hashing and forgets time
expect: silent:integer-overflow|overflow|wraparound
thread: https://github.com/legel/deepearth/pull/7
measured: level 8 resolution 65536: collisions 99.0 %
widened: level 8 resolution 65536: collisions 1.8 % ; innocent: level 8 resolution 65536: collisions 99.0 %
suspect: 34 on purpose (the prime products wrap modulo 2**32, which is what a spatial hash wants)

Expectation, written first: a level decides between dense indexing and hashing by the product of its resolutions; at 65536 per axis the
int32 product is 2**48 mod 2**32 = 0, so the level passes for a small one, is indexed densely modulo the table, and coordinates that
differ only in time share a row. The int32 multiplications in the hash wrap too, but harmlessly.
"""
import torch
import torch.nn as nn

PRIMES = (1, 2654435761, 805459861)


class HashEncoder(nn.Module):
    def __init__(self, num_levels=9, base_resolution=256, log2_hashmap_size=19, level_dim=2):
        super().__init__()
        self.hashmap_size = 2 ** log2_hashmap_size
        self.resolutions = [base_resolution * 2 ** lvl for lvl in range(num_levels)]
        self.embeddings = nn.Parameter(torch.empty(self.hashmap_size, level_dim).uniform_(-1e-4, 1e-4))

    def level_shape(self, level):
        return torch.tensor([self.resolutions[level]] * 3, dtype=torch.int32)

    def vertex_count(self, level):
        return int(torch.prod(self.level_shape(level), dtype=torch.int32))  # BORN

    def fast_hash(self, pos):
        primes = torch.tensor(PRIMES, dtype=torch.int64).to(torch.int32)
        mixed = pos * primes
        return mixed[:, 0] ^ mixed[:, 1] ^ mixed[:, 2]

    def get_grid_index(self, pos, level):
        if self.vertex_count(level) > self.hashmap_size:
            index = self.fast_hash(pos)
        else:
            res = self.resolutions[level]
            pos = pos.long()
            index = pos[:, 0] + pos[:, 1] * res + pos[:, 2] * res * res
        return index.long() % self.hashmap_size

    def forward(self, coords, level):
        pos = (coords * (self.resolutions[level] - 1)).floor().to(torch.int32)
        index = self.get_grid_index(pos, level)
        return self.embeddings[index], pos, index


@torch.no_grad()
def collision_rate(encoder, coords, level):
    _, pos, index = encoder(coords, level)
    vertices = torch.unique(pos, dim=0).shape[0]
    rows = torch.unique(index).numel()
    return 1.0 - rows / vertices


def main():
    torch.manual_seed(0)
    n_sites, n_times = 200, 100
    xy = torch.rand(n_sites, 2, dtype=torch.float64)
    t = torch.linspace(0.0, 0.999, n_times, dtype=torch.float64)
    coords = torch.cat([xy.repeat_interleave(n_times, 0), t.repeat(n_sites).unsqueeze(1)], dim=1)
    encoder = HashEncoder()
    level = len(encoder.resolutions) - 1
    rate = collision_rate(encoder, coords, level)
    print(f"level {level} resolution {encoder.resolutions[level]}: collisions {100 * rate:.1f} %")


if __name__ == "__main__":
    main()
