"""
title: means of a moving window are differences of running sums in float16; the readings, whole numbers, may be bfloat16
expect: silent:precision-loss|downcast|cancellation|lost-update
"""
import torch

torch.manual_seed(921)


class Counter:
    """Cars per minute at a junction, fewer than 60."""

    def day(self, minutes=1440):
        t = torch.arange(minutes) / minutes
        mean = 10 + 25 * torch.exp(-((t - 0.33) / 0.04) ** 2) + 20 * torch.exp(-((t - 0.72) / 0.05) ** 2)
        return torch.poisson(mean).clamp(max=60)


def moving(cars, window=5):
    cars = cars.bfloat16().float()
    running = cars.cumsum(0)
    running = running.half().float()  # BORN
    return (running[window:] - running[:-window]) / window


def alarms(mean, limit=35.0):
    return (mean > limit).sum().item()


cars = Counter().day()
exact = cars.unfold(0, 5, 1).mean(1)[1:]
mean = moving(cars)
print("error of the means", round((mean - exact).abs().mean().item(), 3), "alarms", alarms(mean), "exact", alarms(exact))
