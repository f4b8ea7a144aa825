"""
title: the position of a quantile in a sorted calibration set is computed in half
expect: silent:overflow|precision-loss|promotion
thread: https://github.com/numpy/numpy/pull/31490
measured: wanted [50.0, 75.0, 81.2, 87.5] % covered [50.1, 100.0, 100.0, 100.0] %
widened: wanted [50.0, 75.0, 81.2, 87.5] % covered [50.1, 75.0, 81.4, 87.4] %

Expectation, written first: the levels are half like the scores, and level times count is half as well: positions
above 2048 are rounded to multiples of sixteen or more and past 65504 they are infinite.
"""
import torch


class SortedScores:
    def __init__(self, scores):
        self.values = scores.sort().values

    def positions(self, levels):
        return (len(self.values) - 1) * levels  # BORN

    def quantile(self, levels):
        position = self.positions(levels)
        last = len(self.values) - 1
        index = torch.nan_to_num(position.double(), posinf=float(last)).clamp(0, last)
        low = index.floor().long()
        high = (low + 1).clamp(max=last)
        weight = index - low
        values = self.values.double()
        return values[low] * (1 - weight) + values[high] * weight


class Conformal:
    def __init__(self, alphas):
        self.alphas = alphas

    def fit(self, scores):
        self.threshold = SortedScores(scores).quantile(1 - self.alphas)
        return self

    def coverage(self, scores):
        return (scores.double()[:, None] <= self.threshold).double().mean(0)


def scores(n, gen):
    return torch.randn(n, generator=gen).abs().mul(0.3).half()


def main():
    gen = torch.Generator().manual_seed(0)
    alphas = torch.tensor([0.5, 0.25, 0.1875, 0.125]).half()  # BORN
    model = Conformal(alphas).fit(scores(90_000, gen))
    got = model.coverage(scores(40_000, gen))
    print("wanted", [round(100 * (1 - a), 1) for a in alphas.tolist()], "% covered", [round(100 * c, 1) for c in got.tolist()], "%")


main()
