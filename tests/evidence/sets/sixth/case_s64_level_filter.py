"""
title: the variance of a level filter is rounded to bfloat16 and its gain freezes; the readings in eighths may be half
expect: silent:precision-loss|downcast|lost-update
"""
import torch

torch.manual_seed(918)


class Tank:
    """The level is constant; readings are noisy and come in eighths."""

    def __init__(self, level=61.3):
        self.level = level

    def reading(self):
        return ((self.level + 6 * torch.randn(())) * 8).round() / 8


class LevelFilter:
    """The best estimate of a constant: the precision grows by one reading's each time."""

    def __init__(self, noise=36.0):
        self.noise = noise
        self.level, self.precision = torch.tensor(0.0), torch.tensor(1e-4)

    def update(self, reading):
        reading = reading.half().float()
        precision = self.precision + 1 / self.noise
        self.precision = precision.bfloat16().float()  # BORN
        self.level = self.level + (reading - self.level) / (self.noise * self.precision)


errors = []
for trial in range(12):
    tank, filter_ = Tank(), LevelFilter()
    for t in range(1500):
        filter_.update(tank.reading())
    errors.append(filter_.level.item() - tank.level)
print("error", round(torch.tensor(errors).square().mean().sqrt().item(), 3), "claimed", round(filter_.precision.rsqrt().item(), 3), "possible",
      round(6 / 1500 ** 0.5, 3))
