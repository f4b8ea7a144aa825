"""
title: reading depth inside windows of a contig
expect: silent:precision-loss|downcast
thread: https://github.com/pytorch/pytorch/issues/114544
measured: bases per window of 50: [50, 51, 47, 64] / depth: [3.4, 7.41, 3.94, 12.5]
widened: bases per window of 50: [50, 50, 50, 50] / depth: [3.4, 7.44, 4.56, 13.44]

Expectation, written first: the positions along the contig are made in bf16, where
whole numbers above 256 are rounded, so windows take in or leave out many bases. BORN is the
factory of the positions; an integer or float32 one mends it. The bf16 depths are small whole
numbers and lose nothing.
"""
import torch
from torch import nn


class Contig:
    def __init__(self, length, reads, read_length, seed):
        gen = torch.Generator().manual_seed(seed)
        starts = torch.randint(0, length - read_length, (reads,), generator=gen)
        change = torch.zeros(length + 1)
        change.index_add_(0, starts, torch.ones(reads))
        change.index_add_(0, starts + read_length, -torch.ones(reads))
        self.depth = change.cumsum(0)[:-1]
        self.length = length


class WindowStats(nn.Module):
    """Bases covered and mean depth for half-open windows."""

    def __init__(self, length):
        super().__init__()
        self.register_buffer("position", torch.arange(length, dtype=torch.bfloat16))  # BORN

    def forward(self, depth, windows):
        begin, end = windows[:, :1], windows[:, 1:]
        inside = (self.position[None] >= begin) & (self.position[None] < end)
        covered = inside.sum(1)
        total = (depth.float()[None] * inside).sum(1)
        return covered, total / covered.clamp(min=1)


def main():
    contig = Contig(length=6000, reads=500, read_length=100, seed=0)
    windows = torch.tensor([[10, 60], [700, 750], [2100, 2150], [5003, 5053]])
    depth = contig.depth.to(torch.bfloat16)
    covered, mean = WindowStats(contig.length)(depth, windows)
    print("bases per window of 50:", covered.tolist())
    print("depth:", [round(v, 2) for v in mean.tolist()])


if __name__ == "__main__":
    main()
