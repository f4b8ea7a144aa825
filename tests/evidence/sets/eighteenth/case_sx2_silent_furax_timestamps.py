"""
title: sample rate of an observation comes out wrong after the reader's downcast of absolute time stamps
expect: silent:precision-loss|downcast
thread: https://github.com/CMBSciPol/furax/pull/145
measured: sample rate 117.18 Hz (100), hwp 2.344 Hz (2), line at 9.37 Hz (8)
widened: sample rate 100.00 Hz (100), hwp 2.000 Hz (2), line at 8.00 Hz (8)
innocent: sample rate 117.18 Hz (100), hwp 2.344 Hz (2), line at 9.37 Hz (8)
suspect: line 33 harmless (detector noise of order one needs no more than float32)

Expectation, written first: the time stamps are POSIX seconds, 1.7e9, and float32 steps by 128 s there. The reader casts
them like every other field, so first and last stamp are rounded to that grid and rate, modulation frequency and knee are
off by tens of percent. The samples, cast on the next line, lose nothing that matters.
"""
from dataclasses import dataclass

import torch


@dataclass
class Observation:
    timestamps: torch.Tensor
    sample_data: torch.Tensor
    hwp_angles: torch.Tensor


class ObservationReader:
    def __init__(self, double_precision=False):
        self.dtype = torch.float64 if double_precision else torch.float32

    def read(self, obs):
        return {
            "timestamps": obs.timestamps.to(self.dtype),  # BORN
            "sample_data": obs.sample_data.to(self.dtype),
            "hwp_angles": obs.hwp_angles.to(self.dtype),
        }


def sample_rate(data):
    t = data["timestamps"]
    return (len(t) - 1) / (t.max() - t.min())


def hwp_frequency(data):
    t = data["timestamps"]
    turns = (data["hwp_angles"][-1] - data["hwp_angles"][0]) / (2 * torch.pi)
    return turns / (t.max() - t.min())


def line_frequency(data):
    spectrum = torch.fft.rfft(data["sample_data"] - data["sample_data"].mean()).abs()
    peak = spectrum.argmax()
    return peak * sample_rate(data) / data["sample_data"].shape[-1]


def simulate(start=1_700_000_100.0, duration=300.0, rate=100.0, hwp=2.0, line=8.0):
    n = int(duration * rate)
    elapsed = torch.arange(n, dtype=torch.float64) / rate
    samples = torch.randn(n, dtype=torch.float64) + 2.0 * torch.sin(2 * torch.pi * line * elapsed)
    return Observation(start + elapsed, samples, 2 * torch.pi * hwp * elapsed)


def main():
    torch.manual_seed(0)
    data = ObservationReader(double_precision=False).read(simulate())
    print(f"sample rate {sample_rate(data):.2f} Hz (100), hwp {hwp_frequency(data):.3f} Hz (2), line at {line_frequency(data):.2f} Hz (8)")


main()
