"""
title: a hash of voxel coordinates that lets its products wrap
expect: clean
thread: https://github.com/mit-han-lab/torchsparse/issues/8

Expectation, written first: the multiplications of the hash overflow int64 on purpose;
only the mixed low bits are used as a bucket. Wrapping is the definition of the hash; nothing is
lost, every voxel is found again. Coordinates held as int32 or int64 give the same answer.
"""
import torch


class CoordinateHash:
    PRIME = 1099511628211
    SEED = -3750763034362895579

    def __call__(self, coords):
        h = torch.full((len(coords),), self.SEED)
        for k in range(coords.shape[1]):
            h = h ^ coords[:, k]
            h = h * self.PRIME
        return h


class VoxelTable:
    def __init__(self, hasher, buckets):
        self.hasher, self.buckets = hasher, buckets
        self.slots = [[] for _ in range(buckets)]

    def bucket(self, coords):
        return self.hasher(coords).remainder(self.buckets).tolist()

    def insert(self, coords):
        for row, slot in enumerate(self.bucket(coords)):
            self.slots[slot].append((tuple(coords[row].tolist()), row))
        return self

    def find(self, coords):
        found = []
        for key, slot in zip(coords.tolist(), self.bucket(coords)):
            found.append(next((r for k, r in self.slots[slot] if k == tuple(key)), -1))
        return found


def main():
    gen = torch.Generator().manual_seed(0)
    coords = torch.randint(0, 4000, (3000, 4), generator=gen, dtype=torch.int32)
    coords = torch.unique(coords, dim=0)
    table = VoxelTable(CoordinateHash(), 4096).insert(coords)
    found = table.find(coords)
    missing = table.find(coords + 5000)
    longest = max(len(s) for s in table.slots)
    print("found %d of %d, strangers found %d, longest bucket %d"
          % (sum(f == i for i, f in enumerate(found)), len(coords),
             sum(m >= 0 for m in missing), longest))


if __name__ == "__main__":
    main()
