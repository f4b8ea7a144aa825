"""
title: items are drawn by a search in their cumulated popularity in half
expect: silent:precision-loss|downcast|round-trip
thread: https://github.com/numpy/numpy/issues/24443
measured: items never drawn as negatives: 3514 of 5000
widened: items never drawn as negatives: 0 of 5000

Expectation, written first: near one the steps of half are 1/2048 and larger than most items'
share; most of the tail has an empty interval and is never drawn.
"""
import torch


class PopularitySampler:
    def __init__(self, counts, dtype):
        share = (counts.double() ** 0.75)
        share = share / share.sum()
        self.cdf = share.cumsum(0).to(dtype)  # BORN

    def draw(self, n, gen):
        u = torch.rand(n, generator=gen).clamp(max=1 - 1e-7)
        return torch.searchsorted(self.cdf.float(), u, right=True).clamp(max=len(self.cdf) - 1)


def zipf(items):
    return (1e6 / torch.arange(1, items + 1, dtype=torch.float64)).long() + 1


def main(items=5000, draws=400_000):
    gen = torch.Generator().manual_seed(0)
    counts = zipf(items)
    sampler = PopularitySampler(counts, torch.float16)  # BORN
    drawn = torch.bincount(sampler.draw(draws, gen), minlength=items)
    print(f"items never drawn as negatives: {(drawn == 0).sum().item()} of {items}")


main()
