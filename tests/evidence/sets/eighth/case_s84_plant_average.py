"""
title: hourly means of plant sensors
expect: silent:overflow|downcast
thread: https://github.com/tracel-ai/burn/issues/4770
measured: hall 12.12, cooling inf, hot line inf
widened: hall 12.12, cooling 84.17, hot line 418.03
fix_at: 46

Expectation, written first: the readings are half and their sum over an hour passes
65504 on the warmer lines, so their means are inf although every reading fits. BORN is the cast of the
readings; float32 gives the mean. The half calibration factors only round by a thousandth.
"""
import torch
from torch import nn


class Plant:
    LEVELS = (12.0, 85.0, 410.0)

    def __init__(self, seed):
        self.gen = torch.Generator().manual_seed(seed)

    def hour(self, samples=3600):
        base = torch.tensor(self.LEVELS)[:, None]
        drift = torch.sin(torch.linspace(0, 6, samples))[None]
        return base * (1 + 0.01 * drift) + torch.randn(3, samples, generator=self.gen)


class Calibration(nn.Module):
    def __init__(self):
        super().__init__()
        factors = torch.tensor([1.01, 0.99, 1.02])
        self.register_buffer("factors", factors.to(torch.float16))

    def forward(self, values):
        return values * self.factors.float()


class HourlyMean:
    def __init__(self, calibration):
        self.calibration = calibration
        self.rows = []

    def push(self, readings):
        compact = readings.to(torch.float16)  # BORN
        total = compact.sum(dim=1)
        self.rows.append(self.calibration(total.float() / compact.shape[1]))

    def table(self):
        return torch.stack(self.rows).mean(0)


def main():
    plant, means = Plant(0), HourlyMean(Calibration())
    for _ in range(6):
        means.push(plant.hour())
    names = ("hall", "cooling", "hot line")
    print(", ".join("%s %.2f" % (n, v) for n, v in zip(names, means.table().tolist())))


if __name__ == "__main__":
    main()
