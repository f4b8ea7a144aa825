"""
title: an energy meter in bf16 with compensated sums
expect: clean
thread: https://github.com/zyushun/Adam-mini/issues/26

Expectation, written first: the running sum is bf16 and grows far beyond the single
readings, but a second bf16 number carries what each addition lost (Kahan), so the pair holds
the sum to about 16 bits. With float32 the printed total is the same.
"""
import torch


class KahanSum:
    """Sum and correction, both in the compact type."""

    def __init__(self, shape, dtype):
        self.total = torch.zeros(shape, dtype=dtype)
        self.lost = torch.zeros(shape, dtype=dtype)

    def add(self, x):
        y = x.to(self.total.dtype) - self.lost
        t = self.total + y
        self.lost = (t - self.total) - y
        self.total = t

    def value(self):
        return self.total.double() - self.lost.double()


class Household:
    def __init__(self, homes, seed):
        self.gen = torch.Generator().manual_seed(seed)
        self.homes = homes

    def reading(self):
        """Whole sixteenths of a kilowatt hour."""
        return torch.randint(1, 16, (self.homes,), generator=self.gen) / 16.0


class Meter:
    def __init__(self, homes, dtype=torch.bfloat16):
        self.sum = KahanSum((homes,), dtype)

    def run(self, source, hours):
        exact = torch.zeros(source.homes, dtype=torch.float64)
        for _ in range(hours):
            x = source.reading()
            self.sum.add(x)
            exact += x.double()
        return exact


def main():
    source = Household(homes=8, seed=0)
    meter = Meter(8)
    exact = meter.run(source, hours=4000)
    got = meter.sum.value()
    worst = ((got - exact).abs() / exact).max().item()
    print("mean total %.0f kWh, worst relative error below 0.2%%: %s" % (round(got.mean().item(), -1), worst < 2e-3))


if __name__ == "__main__":
    main()
