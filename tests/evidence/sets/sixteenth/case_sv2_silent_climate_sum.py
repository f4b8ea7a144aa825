"""
title: the stacked mean of a long model run is summed in the dtype of its output files
expect: silent:precision-loss|lost-update
thread: https://github.com/spencerahill/aospy/issues/217
measured: anomaly against 288 K: 0.04 K
widened: anomaly against 288 K: 0.30 K

Expectation, written first: after some hundred thousand time steps the sum of temperatures is above 1e8, where float32
has steps of 8; each further 288.4 is added as 288 and the anomaly vanishes. The files are packed int16 with a scale of
0.01, which is finer than the signal.
"""
import torch


class PackedFile:
    """temperatures as int16 with scale and offset"""

    def __init__(self, kelvin, scale=0.01, offset=280.0):
        self.scale, self.offset = scale, offset
        self.data = ((kelvin - offset) / scale).round().to(torch.int16)

    def read(self):
        return self.data * self.scale + self.offset


class ModelRun:
    def __init__(self, stations, steps, gen):
        self.level = torch.linspace(288.1, 288.5, stations)
        self.stations, self.steps, self.gen = stations, steps, gen

    def files(self, per_file=5000):
        for first in range(0, self.steps, per_file):
            t = torch.arange(first, first + per_file)
            day = 0.2 * torch.sin(2 * torch.pi * t / 4320)[:, None]
            noise = 0.1 * torch.randn(per_file, self.stations, generator=self.gen)
            yield PackedFile(self.level + day + noise)


class StackedMean:
    def __init__(self, stations, dtype=torch.float32):  # BORN
        self.total = torch.zeros(stations, dtype=dtype)  # BORN
        self.count = 0

    def add(self, file):
        for row in file.read():
            self.total += row
            self.count += 1

    def value(self):
        return self.total / self.count


def main():
    run = ModelRun(stations=16, steps=400_000, gen=torch.Generator().manual_seed(24))
    mean = StackedMean(16)
    for file in run.files():
        mean.add(file)
    anomaly = (mean.value().double() - 288.0).mean()
    print(f"anomaly against 288 K: {anomaly:.2f} K")


main()
