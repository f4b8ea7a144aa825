"""
title: forces are summed in fixed point, as 64-bit integers
expect: clean
thread: https://github.com/StreamHPC/gromacs/issues/94
measured: same for both orders True, momentum 0.0e+00, within 1e-5 of float64 True

Expectation, written first: a float32 force is scaled by two to the thirtieth and rounded to int64 before it is added;
the sums do not depend on the order and keep all digits of the single terms.
"""
import torch


class FixedPoint:
    def __init__(self, shape, bits=30):
        self.scale = float(1 << bits)
        self.acc = torch.zeros(shape, dtype=torch.int64)

    def add(self, index, value):
        self.acc.index_add_(0, index, (value.double() * self.scale).round().to(torch.int64))

    def value(self):
        return self.acc.double() / self.scale


class LennardJones:
    def __init__(self, epsilon=1.0, sigma=1.0, cutoff=3.0):
        self.epsilon, self.sigma, self.cutoff = epsilon, sigma, cutoff

    def pairs(self, pos):
        d = torch.cdist(pos, pos)
        i, j = torch.triu_indices(len(pos), len(pos), 1)
        keep = d[i, j] < self.cutoff
        return i[keep], j[keep]

    def force(self, pos, i, j):
        r = pos[i] - pos[j]
        inv2 = 1 / (r * r).sum(1, keepdim=True)
        s6 = (self.sigma ** 2 * inv2) ** 3
        return 24 * self.epsilon * (2 * s6 ** 2 - s6) * inv2 * r


def total(pos, order, potential):
    i, j = (v[order] for v in potential.pairs(pos))
    f = potential.force(pos, i, j)
    acc = FixedPoint(pos.shape)
    for a, b, part in zip(i.split(200), j.split(200), f.split(200)):
        acc.add(a, part)
        acc.add(b, -part)
    return acc.value()


def main():
    gen = torch.Generator().manual_seed(0)
    axis = torch.arange(6) * 1.12
    pos = torch.stack(torch.meshgrid(axis, axis, axis, indexing="ij"), -1).view(-1, 3)
    pos = pos + 0.02 * torch.randn(pos.shape, generator=gen)
    lj = LennardJones()
    n = len(lj.pairs(pos)[0])
    one = total(pos, torch.arange(n), lj)
    two = total(pos, torch.randperm(n, generator=gen), lj)
    i, j = lj.pairs(pos)
    f = lj.force(pos.double(), i, j)
    wide = torch.zeros(pos.shape, dtype=torch.float64).index_add_(0, i, f).index_add_(0, j, -f)
    close = ((one - wide).abs().max() / wide.abs().max() < 1e-5).item()
    print(f"same for both orders {torch.equal(one, two)}, momentum {one.sum(0).abs().max().item():.1e}, within 1e-5 of float64 {close}")


main()
