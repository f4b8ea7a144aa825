"""
title: length of a walked track from latitude and longitude
expect: silent:precision-loss|downcast
thread: https://github.com/georust/geo/issues/100
measured: track length 236214 m, mean speed 236.26 m/s
widened: track length 1000 m, mean speed 1.00 m/s

Expectation, written first: the cosine formula is evaluated in float32, in which the
cosine of a one-metre step is exactly 1, so most steps have no length or a far too large one.
BORN is the float32 of the coordinates; float64 gives about 1000 m. The half-precision speed
for the display is a mere rounding of the printed figure.
"""
import math

import torch

EARTH = 6371008.8


class Walk:
    """A straight walk, one fix per second."""

    def __init__(self, start=(48.137, 11.575), seconds=1000, speed=1.0):
        self.start, self.seconds, self.speed = start, seconds, speed

    def fixes(self):
        step = math.degrees(self.speed / EARTH)
        rows = [(self.start[0] + i * step, self.start[1]) for i in range(self.seconds + 1)]
        return torch.tensor(rows, dtype=torch.float32)  # BORN


class GreatCircle:
    def __call__(self, a, b):
        a, b = torch.deg2rad(a), torch.deg2rad(b)
        cosine = (torch.sin(a[:, 0]) * torch.sin(b[:, 0])
                  + torch.cos(a[:, 0]) * torch.cos(b[:, 0]) * torch.cos(a[:, 1] - b[:, 1]))
        return EARTH * torch.acos(cosine.clamp(-1, 1))


class TrackStats:
    def __init__(self, metric):
        self.metric = metric
        self.length, self.speeds = 0.0, []

    def add(self, fixes, window=50):
        steps = self.metric(fixes[:-1], fixes[1:])
        self.length += steps.double().sum().item()
        speeds = steps.unfold(0, window, window).mean(1)
        self.speeds.append(speeds.to(torch.float16))

    def report(self):
        return self.length, torch.cat(self.speeds).double().mean().item()


def main():
    stats = TrackStats(GreatCircle())
    stats.add(Walk().fixes())
    length, speed = stats.report()
    print("track length %.0f m, mean speed %.2f m/s" % (length, speed))


if __name__ == "__main__":
    main()
