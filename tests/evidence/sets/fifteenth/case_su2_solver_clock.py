"""
title: a boundary-layer run keeps its clock in the single precision of its fields
expect: silent:lost-update|precision-loss|downcast
thread: https://github.com/erf-model/ERF/pull/3161
measured: simulated 0.00 h, mean surface 14.9 C
widened: simulated 4.00 h, mean surface 27.7 C

Expectation, written first: a clock started at the second of the year has a float32 step of two seconds, a time step of
half a second is less than half of it and is dropped, so the sun stands still and the run never heats. The surface
temperatures, single precision too, grow by thousandths of a degree per step, a hundred times their spacing.
"""
import math

import torch


class Clock:
    def __init__(self, start, dt, dtype=torch.float32):  # BORN
        self.now = torch.tensor(start, dtype=dtype)  # BORN
        self.dt = torch.tensor(dt, dtype=dtype)

    def advance(self):
        self.now = self.now + self.dt


class Surface:
    """four kinds of ground with their heat capacity and albedo"""

    def __init__(self, n, seed):
        gen = torch.Generator().manual_seed(seed)
        self.kind = torch.randint(0, 4, (n,), generator=gen).to(torch.int8)
        self.capacity = torch.tensor([2.0e5, 3.0e5, 5.0e5, 9.0e5])[self.kind.long()]
        self.albedo = torch.tensor([0.15, 0.2, 0.3, 0.1])[self.kind.long()]
        self.emissivity = 15 / 16
        self.temperature = torch.full((n,), 288.0, dtype=torch.float32)

    def step(self, sun, dt):
        absorbed = (1 - self.albedo) * sun
        lost = self.emissivity * 5.67e-8 * (self.temperature ** 4 - 280.0 ** 4)
        self.temperature = self.temperature + dt * (absorbed - lost) / self.capacity


class Sun:
    day = 86400.0

    def __init__(self, latitude):
        self.cos_lat = math.cos(math.radians(latitude))

    def flux(self, now):
        hour_angle = 2 * math.pi * (float(now) % self.day) / self.day - math.pi
        return 1361.0 * max(0.0, self.cos_lat * math.cos(hour_angle))


class Simulation:
    def __init__(self, start, dt, n=256):
        self.clock, self.surface, self.sun = Clock(start, dt), Surface(n, seed=4), Sun(47.0)
        self.begin = start

    def run(self, hours):
        dt = float(self.clock.dt)
        for _ in range(int(hours * 3600 / dt)):
            self.surface.step(self.sun.flux(self.clock.now), dt)
            self.clock.advance()

    def report(self):
        elapsed = (float(self.clock.now) - self.begin) / 3600
        return f"simulated {elapsed:.2f} h, mean surface {self.surface.temperature.mean() - 273.15:.1f} C"


def main():
    sunrise = 199 * 86400.0 + 6.2 * 3600
    simulation = Simulation(sunrise, dt=0.5)
    simulation.run(hours=4)
    print(simulation.report())


main()
