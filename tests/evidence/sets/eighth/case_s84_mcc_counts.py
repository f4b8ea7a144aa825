"""
title: the Matthews coefficient of a fraud filter over a month of payments
expect: silent:overflow|precision-loss|downcast
thread: https://github.com/sepandhaghighi/pycm/issues/624
measured: matthews coefficient 0.1124
widened: matthews coefficient 0.7285
fix_at: 46

Expectation, written first: the four counts are int32 and are multiplied with one
another, which passes 2**31, so the coefficient is nonsense. BORN is the int32 of the counts;
float64 there gives the true value. The half scores keep the order around the threshold.
"""
import torch
from torch import nn


class Payments:
    def __init__(self, rate, seed):
        self.gen = torch.Generator().manual_seed(seed)
        self.rate = rate

    def day(self, n=20000):
        fraud = torch.rand(n, generator=self.gen) < self.rate
        x = torch.randn(n, 4, generator=self.gen) + 1.5 * fraud[:, None].float()
        return x, fraud


class Filter(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x):
        return torch.sigmoid(x @ self.weight - 5.5).half()


class Matthews:
    def __init__(self):
        self.counts = torch.zeros(4, dtype=torch.int32)  # BORN

    def update(self, alarm, fraud):
        cells = [alarm & fraud, alarm & ~fraud, ~alarm & fraud, ~alarm & ~fraud]
        self.counts += torch.stack([c.sum() for c in cells]).to(self.counts.dtype)

    def compute(self):
        tp, fp, fn, tn = self.counts
        top = tp * tn - fp * fn
        bottom = (tp + fp).double() * (tp + fn) * (tn + fp) * (tn + fn)
        return (top / bottom.sqrt()).item()


@torch.no_grad()
def main():
    payments, model, score = Payments(0.05, seed=0), Filter(), Matthews()
    for _ in range(30):
        x, fraud = payments.day()
        score.update(model(x) > 0.5, fraud)
    print("matthews coefficient %.4f" % score.compute())


if __name__ == "__main__":
    main()
