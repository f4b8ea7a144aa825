"""
title: The spatial hash of a hash grid overflows int32 on purpose
expect: clean
thread: https://github.com/NVIDIAGameWorks/kaolin-wisp/pull/132
measured: sdf error 0.044 index range 0..4095 rows used 4059
suspect: 33 exact (the table size is a power of two, only the low bits are used and wrapping keeps them)

Expectation, written first: Coordinates times primes near 2**31 wrap around in int32. The index is the low twelve
bits of the xor of the products, and these are the same for int32 and int64 arithmetic, so the grid looks up the same
rows and trains to the same loss.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

# 2654435761 and 805459861 as signed 32 bit numbers
PRIMES = (1, -1640531535, 805459861)


class HashGrid(nn.Module):
    def __init__(self, resolutions, codebook_bitwidth, feature_dim):
        super().__init__()
        self.resolutions, self.size = resolutions, 2 ** codebook_bitwidth
        self.codebook = nn.ParameterList(
            nn.Parameter(torch.randn(self.size, feature_dim) * 1e-2) for _ in resolutions)
        corner = torch.arange(8)
        self.register_buffer("corners", torch.stack([corner >> 2 & 1, corner >> 1 & 1, corner & 1], -1))

    def hash(self, cell):
        cc = cell.to(torch.int32)
        index = cc[..., 0] * PRIMES[0]
        for axis in (1, 2):
            index = torch.bitwise_xor(index, cc[..., axis] * PRIMES[axis])
        return torch.bitwise_and(index, self.size - 1).long()

    def interpolate(self, coords, lod):
        x = (coords * 0.5 + 0.5) * self.resolutions[lod]
        base = x.floor()
        frac = (x - base).unsqueeze(1)
        corners = self.corners.to(x.dtype)
        weight = (frac * corners + (1 - frac) * (1 - corners)).prod(-1, keepdim=True)
        index = self.hash(base.long().unsqueeze(1) + self.corners)
        return (self.codebook[lod][index] * weight).sum(1)

    def forward(self, coords):
        return torch.cat([self.interpolate(coords, i) for i in range(len(self.resolutions))], -1)


class NeuralSDF(nn.Module):
    def __init__(self, grid, feature_dim):
        super().__init__()
        self.grid = grid
        self.decoder = nn.Sequential(nn.Linear(feature_dim, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, coords):
        return self.decoder(self.grid(coords)).squeeze(-1)


def sphere_sdf(coords, radius=0.6):
    return coords.norm(dim=-1) - radius


def main():
    torch.manual_seed(132)
    grid = HashGrid([8, 32, 128], codebook_bitwidth=12, feature_dim=2)
    model = NeuralSDF(grid, 6)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(60):
        coords = torch.rand(256, 3) * 2 - 1
        loss = F.mse_loss(model(coords), sphere_sdf(coords))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        coords = torch.rand(2048, 3) * 2 - 1
        error = (model(coords) - sphere_sdf(coords)).abs().mean().item()
        index = grid.hash(torch.randint(0, 129, (20000, 3)))
    print(f"sdf error {error:.3f} index range {int(index.min())}..{int(index.max())} "
          f"rows used {index.unique().numel()}")


if __name__ == "__main__":
    main()
