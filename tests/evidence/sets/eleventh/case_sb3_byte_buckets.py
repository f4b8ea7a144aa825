"""
title: bytes are put into buckets whose signed boundaries are partly negative
expect: clean
thread: https://github.com/pytorch/pytorch/issues/145929
measured: readings below zero 0, share above 127 0.4422, same as float64 True

Expectation, written first: bucketize promotes uint8 and int8 to int16 before it compares, and the counts are int64;
the table agrees with one made from float64.
"""
import torch
from torch.utils.data import DataLoader, Dataset


class SensorBytes(Dataset):
    """eight bit readings, some of them offset binary"""

    def __init__(self, n, seed=0):
        gen = torch.Generator().manual_seed(seed)
        self.level = (torch.randn(n, generator=gen) * 60 + 120).round().clamp(0, 255).to(torch.uint8)
        self.site = torch.randint(0, 4, (n,), generator=gen).to(torch.int8)

    def __len__(self):
        return len(self.level)

    def __getitem__(self, i):
        return self.level[i], self.site[i]


class BucketTable:
    def __init__(self, boundaries, sites):
        self.boundaries = boundaries
        self.counts = torch.zeros(sites, len(boundaries) + 1, dtype=torch.int64)

    def update(self, level, site):
        slot = torch.bucketize(level, self.boundaries, out_int32=True)
        key = site.to(torch.int32) * self.counts.shape[1] + slot
        self.counts += torch.bincount(key, minlength=self.counts.numel()).view_as(self.counts)

    def shares(self):
        return self.counts.double() / self.counts.sum(1, keepdim=True)


def table(data, boundaries, wide=False):
    out = BucketTable(boundaries.double() if wide else boundaries, sites=4)
    for level, site in DataLoader(data, batch_size=500):
        out.update(level.double() if wide else level, site)
    return out


def main():
    data = SensorBytes(4000)
    boundaries = torch.tensor([-20, -1, 40, 80, 127], dtype=torch.int8)
    narrow, wide = table(data, boundaries), table(data, boundaries, wide=True)
    below = narrow.counts[:, :2].sum().item()
    print(f"readings below zero {below}, share above 127 {narrow.shares()[:, -1].mean().item():.4f}, same as float64 {torch.equal(narrow.counts, wide.counts)}")


main()
