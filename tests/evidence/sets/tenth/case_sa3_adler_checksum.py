"""
title: shards are told apart by a checksum that wraps in int32 on purpose
expect: clean
thread: https://github.com/pytorch/pytorch/pull/188661
measured: checksums as by exact arithmetic: 64 of 64, changed shards found [7]

Expectation, written first: FNV multiplies modulo 2^32 by design; the wrapped int32 products
are the same as those of exact arithmetic with a modulus.
"""
import torch

PRIME, BASIS = 16777619, 2166136261


def as_int32(value):
    return value - (1 << 32) if value >= 1 << 31 else value


def checksum(shards):
    data = shards.contiguous().view(torch.uint8).view(len(shards), -1)
    state = torch.full((len(shards),), as_int32(BASIS), dtype=torch.int32)
    for column in data.t():
        state = (state ^ column.to(torch.int32)) * PRIME
    return state.long() & 0xFFFFFFFF


def exact(row):
    state = BASIS
    for byte in row.contiguous().view(torch.uint8).tolist():
        state = (state ^ byte) * PRIME % (1 << 32)
    return state


def main():
    gen = torch.Generator().manual_seed(0)
    shards = torch.randn(64, 50, generator=gen)
    sums = checksum(shards)
    same = sum(exact(row) == s for row, s in zip(shards, sums.tolist()))
    changed = shards.clone()
    changed[7, 3] += 1e-3
    found = (checksum(changed) != sums).nonzero().flatten().tolist()
    print(f"checksums as by exact arithmetic: {same} of 64, changed shards found {found}")


main()
