"""
title: spatial hash of grid corners multiplies by 32-bit primes and XORs; the products stay within int64 and only the low bits are used
expect: clean
thread: https://github.com/yashbhalgat/HashNeRF-pytorch/issues/6
measured: mismatches 0 entries 878; loss 1.5723
suspect: 21 exact

Expectation, written first: the hash multiplies integer corner coordinates with primes of up to 32 bits, which looks like an overflow. The coordinates
are int64 and below 2^13, so the products stay below 2^45, and the mask keeps only the low bits in any case. The program prints 0 mismatches.
"""
import torch
import torch.nn as nn

PRIMES = [1, 2654435761, 805459861]
BOX_OFFSETS = torch.tensor([[i, j, k] for i in (0, 1) for j in (0, 1) for k in (0, 1)])


def hash_corners(coords, log2_hashmap_size):
    result = torch.zeros_like(coords)[..., 0]
    for i in range(coords.shape[-1]):
        result ^= coords[..., i] * PRIMES[i]
    return ((1 << log2_hashmap_size) - 1) & result


class HashEmbedder(nn.Module):
    def __init__(self, n_levels=4, n_features=2, log2_hashmap_size=10, base=16, finest=512):
        super().__init__()
        self.log2_hashmap_size = log2_hashmap_size
        growth = (finest / base) ** (1 / (n_levels - 1))
        self.resolutions = [int(base * growth**i) for i in range(n_levels)]
        self.embeddings = nn.ModuleList(nn.Embedding(2**log2_hashmap_size, n_features) for _ in range(n_levels))
        for e in self.embeddings:
            nn.init.uniform_(e.weight, a=-0.01, b=0.01)

    def voxel(self, x, resolution):
        scaled = x * resolution
        corner = torch.floor(scaled).long()
        return corner.unsqueeze(1) + BOX_OFFSETS, scaled - corner

    def forward(self, x):
        feats = []
        for resolution, table in zip(self.resolutions, self.embeddings):
            corners, w = self.voxel(x, resolution)
            e = table(hash_corners(corners, self.log2_hashmap_size))
            w = w.unsqueeze(1)
            weights = torch.where(BOX_OFFSETS.bool(), w, 1 - w).prod(dim=-1, keepdim=True)
            feats.append((weights * e).sum(dim=1))
        return torch.cat(feats, dim=-1)


def exact_hash(coords, log2_hashmap_size):
    out = []
    for point in coords.reshape(-1, 3).tolist():
        h = 0
        for c, p in zip(point, PRIMES):
            h ^= c * p
        out.append(h & ((1 << log2_hashmap_size) - 1))
    return torch.tensor(out).view(coords.shape[:-1])


def main():
    torch.manual_seed(0)
    embedder = HashEmbedder()
    decoder = nn.Linear(8, 1)
    optimizer = torch.optim.SGD([*embedder.parameters(), *decoder.parameters()], lr=0.5)
    points = torch.rand(256, 3)
    target = torch.sin(6 * points).sum(dim=1, keepdim=True)
    for _ in range(30):
        loss = (decoder(embedder(points)) - target).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    corners, _ = embedder.voxel(points, embedder.resolutions[-1])
    hashed = hash_corners(corners, 10)
    print("mismatches", int((hashed != exact_hash(corners, 10)).sum()), "entries", hashed.unique().numel())
    print("loss", round(loss.item(), 4))


if __name__ == "__main__":
    main()
