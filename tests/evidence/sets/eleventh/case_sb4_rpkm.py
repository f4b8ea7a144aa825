"""
title: a factor of a billion is applied to int32 counts; the result is rounded to half
expect: silent:integer-overflow|overflow
thread: https://github.com/elegant-scipy/elegant-scipy/pull/327
measured: genes silent, low, middle, high: [269, 31, 0, 0]
widened: genes silent, low, middle, high: [10, 109, 137, 44]

Expectation, written first: a count times a billion leaves int32 from three reads on and the rates are noise.
The rounding of their logarithm to half moves no gene to another class.
"""
import pandas as pd
import torch


def load_counts(genes, samples, gen):
    rate = torch.exp(torch.randn(genes, 1, generator=gen) * 1.5 + 3)
    table = torch.poisson(rate.expand(-1, samples), generator=gen).int()
    length = torch.randint(400, 6000, (genes,), generator=gen)
    frame = pd.DataFrame(table.numpy(), columns=[f"s{i}" for i in range(samples)])
    frame.insert(0, "length", length.numpy())
    return frame


class Expression:
    def __init__(self, frame, per=1_000_000_000):
        self.per = per
        self.length = torch.tensor(frame["length"].to_numpy())
        self.counts = torch.tensor(frame.drop(columns="length").to_numpy())

    def rpkm(self):
        total = self.counts.sum(0)
        scaled = self.per * self.counts  # BORN
        return scaled.double() / (total * self.length[:, None]).double()

    def log_table(self):
        logs = torch.log2(self.rpkm().clamp(min=0) + 1)
        return logs.to(torch.float16)


class Classes:
    edges = torch.tensor([4.0, 8.0, 11.0], dtype=torch.float64)

    def __call__(self, table):
        return torch.bucketize(table.double().mean(1), self.edges)


def main():
    gen = torch.Generator().manual_seed(0)
    frame = load_counts(300, 6, gen)
    classes = Classes()(Expression(frame).log_table())
    counts = torch.bincount(classes, minlength=4).tolist()
    print(f"genes silent, low, middle, high: {counts}")


main()
