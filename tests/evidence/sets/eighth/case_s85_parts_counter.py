"""
title: an inspection line that counts parts while the network runs under autocast
expect: silent:lost-update|precision-loss|downcast
thread: https://github.com/pytorch/xla/pull/2425
measured: parts 2048, rejected share 0.710
widened: parts 6000, rejected share 0.242

Expectation, written first: the counter of parts is float16 and stands still at 2048,
so the rejected share is wrong. BORN is the factory of the counters; an int64 or float32 one
counts on. The implicit bf16 of autocast in the network does not move any decision.
"""
import torch
from torch import nn


class Camera:
    """Gives one feature row per part; bad parts are far from good ones."""

    def __init__(self, bad_rate, seed):
        self.gen = torch.Generator().manual_seed(seed)
        self.bad_rate = bad_rate

    def parts(self, count):
        for _ in range(count):
            bad = bool(torch.rand((), generator=self.gen) < self.bad_rate)
            yield torch.randn(1, 12, generator=self.gen) * 0.1 + (1.0 if bad else -1.0)


class Inspector(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(12, 1)
        with torch.no_grad():
            self.lin.weight.fill_(0.5)
            self.lin.bias.zero_()

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=True):
            return self.lin(x)[:, 0]


class LineReport:
    def __init__(self):
        self.tally = torch.zeros(2, dtype=torch.float16)  # BORN

    def record(self, bad):
        self.tally[0] += 1
        self.tally[1] += bad.to(self.tally.dtype).sum()

    def rejected_share(self):
        return (self.tally[1] / self.tally[0]).item()


@torch.no_grad()
def main():
    camera, inspector, report = Camera(0.25, seed=0), Inspector(), LineReport()
    for part in camera.parts(6000):
        report.record(inspector(part) > 0)
    print("parts %d, rejected share %.3f" % (report.tally[0].item(), report.rejected_share()))


if __name__ == "__main__":
    main()
