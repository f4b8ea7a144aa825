"""
title: spike times of a long recording are saved in milliseconds in single precision
expect: silent:precision-loss|downcast
thread: https://github.com/jniediek/combinato/issues/14
measured: refractory violations 1.9%, empty bins 18
widened: refractory violations 0.0%, empty bins 0

Expectation, written first: after hours the times have eight digits before the point and float32 keeps steps of
two to four ms; intervals below the refractory time and holes in the histogram appear.
"""
import torch


class SpikeFile:
    """what the sorter keeps of one channel"""

    def __init__(self, times_ms, classes):
        self.times = torch.as_tensor(times_ms, dtype=torch.float32)  # BORN
        self.classes = classes

    def unit(self, k):
        return self.times[self.classes == k]


class UnitReport:
    def __init__(self, refractory=3.0, longest=40.0):
        self.refractory, self.longest = refractory, longest

    def intervals(self, times):
        return times.diff()

    def violations(self, times):
        return (self.intervals(times) < self.refractory).double().mean().item()

    def empty_bins(self, times):
        isi = self.intervals(times)
        isi = isi[isi < self.longest].float()
        counts = torch.histc(isi, bins=40, min=0, max=self.longest)
        return int((counts[5:] == 0).sum())


def recording(n, hours, gen):
    gaps = 3.1 + torch.empty(n, dtype=torch.float64).exponential_(0.08, generator=gen)
    classes = torch.ones(n, dtype=torch.int64)
    return hours * 3.6e6 + gaps.cumsum(0), classes


def main():
    gen = torch.Generator().manual_seed(3)
    stored = SpikeFile(*recording(6000, hours=9.0, gen=gen))
    report = UnitReport()
    times = stored.unit(1)
    print(f"refractory violations {100 * report.violations(times):.1f}%, empty bins {report.empty_bins(times)}")


main()
