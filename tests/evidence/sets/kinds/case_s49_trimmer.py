"""
title: cut points of a long recording are computed in float32
expect: silent:precision-loss|downcast|round-trip
thread: https://github.com/MTG/essentia/issues/1529

Expectation, written first: three hours in, seconds times 44100 exceed 2**24 many times over; the cut lies dozens of samples
off, and consecutive windows overlap or leave gaps. Labels in int8 are innocent.
"""
import torch

RATE = 44_100


class Annotations:
    """start of every segment, in seconds, as read from a text file"""

    def __init__(self, n=200, length=1.0 / 7):
        lines = [f"{10_800 + i * length:.9f}\t{i % 5}" for i in range(n)]
        fields = [line.split("\t") for line in lines]
        self.seconds = [float(a) for a, _ in fields]
        self.label = torch.tensor([int(b) for _, b in fields], dtype=torch.int8)


class Trimmer:
    def __init__(self, seconds):
        self.starts = torch.tensor(seconds)  # BORN

    def samples(self):
        return torch.floor(self.starts * RATE + 0.5).long()


notes = Annotations()
cuts = Trimmer(notes.seconds).samples()
exact = torch.tensor([round(s * RATE) for s in notes.seconds])
lengths = cuts.diff()
print(f"windows of the wrong length {(lengths != 6300).sum().item()} of {len(lengths)}, worst cut {(cuts - exact).abs().max().item()} samples off, labels {notes.label.unique().numel()}")
