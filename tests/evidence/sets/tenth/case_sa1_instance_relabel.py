"""
title: an instance map is read as float32 and relabelled with integer ids
expect: collision
thread: https://github.com/tzt101/INADE/issues/2
fix_at: 36

Expectation, written first: the map comes from the reader in float32, the consecutive new
ids are int64, and an indexed assignment does not convert its source.
"""
import numpy as np
import torch


class InstanceReader:
    def __init__(self, size=24, seed=0):
        self.size, self.rng = size, np.random.default_rng(seed)

    def decode(self, index):
        canvas = np.zeros((self.size, self.size), dtype=np.uint16)
        for obj in range(4):
            y, x = self.rng.integers(0, self.size - 6, size=2)
            canvas[y:y + 6, x:x + 6] = 1000 * (obj + 1) + index
        return canvas

    def __getitem__(self, index):
        return torch.from_numpy(self.decode(index).astype(np.float32))  # BORN


def consecutive_ids(inst):
    values = inst.unique()
    return values, torch.arange(len(values))  # BORN


def relabel(inst):
    values, new_ids = consecutive_ids(inst)
    out = inst.clone()
    rank = torch.searchsorted(values, inst)
    foreground = inst > 0
    out[foreground] = new_ids[rank[foreground]]  # COLLIDES
    return out


def main():
    reader = InstanceReader()
    sizes = []
    for i in range(3):
        inst = relabel(reader[i])
        sizes.append(torch.bincount(inst.long().flatten()).tolist())
    print("pixels of each instance", sizes)


if __name__ == "__main__":
    main()
