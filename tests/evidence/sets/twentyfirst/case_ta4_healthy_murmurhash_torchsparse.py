"""
title: voxel hash map mixes its keys with wrapping multiplications and finds every coordinate again
expect: clean
thread: https://github.com/mit-han-lab/torchsparse/pull/376
measured: 3000 voxels, 3000 found again, 3000 absent ones rejected ; with exact integers modulo 2**32: 3000 voxels, 3000 found again, 3000 absent ones rejected
suspect: 24 purpose (the products wrap modulo 2**32, which is the definition of the finaliser; the slot is taken from a masked value)

Expectation, written first: the murmur finaliser multiplies int32 keys by large odd constants and overflows on purpose; the result is
masked to a non-negative slot and collisions are probed, so every voxel is stored once and found again.
"""
import torch


def to_int32(value):
    return value - (1 << 32) if value >= (1 << 31) else value


def shift_right(k, bits):
    return (k >> bits) & ((1 << (32 - bits)) - 1)


def fmix32(k):
    k = k ^ shift_right(k, 16)
    k = k * to_int32(0x85EBCA6B)
    k = k ^ shift_right(k, 13)
    k = k * to_int32(0xC2B2AE35)
    return k ^ shift_right(k, 16)


class VoxelHashMap:
    def __init__(self, log2_capacity):
        self.mask = (1 << log2_capacity) - 1
        self.slots = {}

    def key(self, coords):
        c = coords.to(torch.int32)
        return fmix32(c[:, 0] * 73856093 ^ c[:, 1] * 19349669 ^ c[:, 2] * 83492791)

    def slot(self, coords):
        return (self.key(coords) & self.mask).tolist()

    def insert(self, coords):
        for value, (slot, xyz) in enumerate(zip(self.slot(coords), coords.tolist())):
            while slot in self.slots and self.slots[slot][0] != xyz:
                slot = (slot + 1) & self.mask
            self.slots.setdefault(slot, (xyz, value))

    def query(self, coords):
        found = []
        for slot, xyz in zip(self.slot(coords), coords.tolist()):
            while slot in self.slots and self.slots[slot][0] != xyz:
                slot = (slot + 1) & self.mask
            found.append(self.slots[slot][1] if slot in self.slots else -1)
        return torch.tensor(found)


def main():
    torch.manual_seed(0)
    coords = torch.unique(torch.randint(-4000, 4000, (3000, 3)), dim=0)
    table = VoxelHashMap(log2_capacity=14)
    table.insert(coords)
    hits = (table.query(coords) == torch.arange(coords.shape[0])).sum().item()
    misses = (table.query(coords + 9000) == -1).sum().item()
    print(f"{coords.shape[0]} voxels, {hits} found again, {misses} absent ones rejected")


if __name__ == "__main__":
    main()
