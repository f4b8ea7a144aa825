"""
title: sixty-four bit post ids are handed over in a float64 table, neighbouring ids become one
expect: silent:precision-loss|downcast|round-trip
thread: https://github.com/manmartgarc/stochatreat/issues/37
measured: distinct ids 500 of 4000, labels right 30.1%
widened: distinct ids 4000 of 4000, labels right 100.0%

Expectation, written first: ids of eighteen digits need 57 bits and float64 has 53; ids that
were given out in the same millisecond fall together and their labels are joined wrongly.
"""
import torch


class Stream:
    def __init__(self, n=4000, seed=0):
        gen = torch.Generator().manual_seed(seed)
        ms = 24_000_000_000 + torch.arange(n) // 8
        self.ids = (ms << 22) | torch.arange(n) % 8
        self.label = torch.randint(0, 5, (n,), generator=gen)
        self.score = torch.rand(n, generator=gen, dtype=torch.float64)


def to_table(stream):
    columns = [stream.ids.to(torch.float64), stream.score]  # BORN
    return torch.stack(columns, dim=1)


def join_labels(table, stream):
    keys = table[:, 0].long()
    lookup = {}
    for key, label in zip(stream.ids.to(table.dtype).long().tolist(), stream.label.tolist()):
        lookup.setdefault(key, label)
    return torch.tensor([lookup[k] for k in keys.tolist()])


def main():
    stream = Stream()
    table = to_table(stream)
    joined = join_labels(table, stream)
    right = (joined == stream.label).float().mean().item()
    print(f"distinct ids {len(table[:, 0].unique())} of {len(stream.ids)}, labels right {100 * right:.1f}%")


main()
