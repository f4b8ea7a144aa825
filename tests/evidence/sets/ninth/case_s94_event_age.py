"""
title: ages of metrics from float32 epoch seconds, values in half
expect: silent:precision-loss|downcast
thread: https://github.com/circonus-labs/reconnoiter/pull/330
measured: late records 797: missed 543, false alarms 84; mean 19.99
widened: late records 797: missed 0, false alarms 0; mean 19.98

Expectation, written first: epoch seconds in float32 move in steps of 128, so ages of a
few seconds become 0 or 128 and the freshness alarm is wrong most of the time. The metric
values are half, good enough for a mean; float64 values alone change no age.
"""
import torch


class Stream:
    def __init__(self, n, seed=0):
        gen = torch.Generator().manual_seed(seed)
        gaps = 20 * torch.rand(n, generator=gen, dtype=torch.float64)
        self.sent = 1478100000.25 + gaps.cumsum(0)
        self.delay = torch.where(torch.rand(n, generator=gen) < 0.2, 40.0, 3.0).double()
        self.value = 20 + torch.randn(n, generator=gen, dtype=torch.float64)

    def records(self):
        return self.sent, self.sent + self.delay, self.value


class Table:
    def __init__(self, time_dtype, value_dtype):
        self.time_dtype, self.value_dtype = time_dtype, value_dtype

    def ingest(self, sent, received, value):
        self.sent = sent.to(self.time_dtype)
        self.received = received.to(self.time_dtype)
        self.value = value.to(self.value_dtype)

    def late(self, limit=30.0):
        return (self.received - self.sent) > limit

    def mean_on_time(self):
        return self.value[~self.late()].double().mean().item()


def main():
    stream = Stream(4000)
    table = Table(
        time_dtype=torch.float32,  # BORN
        value_dtype=torch.float16,
    )
    table.ingest(*stream.records())
    truth = stream.delay > 30
    found = table.late()
    missed = (truth & ~found).sum().item()
    false = (found & ~truth).sum().item()
    print(f"late records {truth.sum().item()}: missed {missed}, false alarms {false}; mean {table.mean_on_time():.2f}")


main()
