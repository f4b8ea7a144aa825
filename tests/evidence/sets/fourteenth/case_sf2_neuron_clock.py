"""
title: the clock of a spiking network adds a tenth of a millisecond to a single precision time
expect: silent:lost-update|precision-loss|downcast
thread: https://github.com/genn-team/genn/issues/183
measured: mean rate 3.3 Hz, time passed 0 ms
widened: mean rate 52.1 Hz, time passed 300 ms

Expectation, written first: after two hours the time is seven million milliseconds, where float32 has steps of one half;
a tenth is lost, the time since the last spike stays zero and each neuron fires once at most. The rates are float16, but
only a few round numbers.
"""
import torch


class Clock:
    def __init__(self, start, dt):
        self.t = torch.tensor(start, dtype=torch.float32)  # BORN
        self.dt = dt

    def tick(self):
        self.t += self.dt
        return self.t


class PoissonNeurons:
    def __init__(self, rates, refractory, seed):
        self.rates = rates.to(torch.float16)
        self.refractory = refractory
        self.last = None
        self.gen = torch.Generator().manual_seed(seed)

    def step(self, clock):
        t = clock.tick()
        if self.last is None:
            self.last = torch.full((len(self.rates),), float("-inf"), dtype=t.dtype)
        chance = self.rates.double() * clock.dt / 1000
        wants = torch.rand(len(self.rates), dtype=torch.float64, generator=self.gen) < chance
        spikes = wants & (t - self.last >= self.refractory)
        self.last = torch.where(spikes, t, self.last)
        return spikes


class Monitor:
    def __init__(self, n):
        self.count = torch.zeros(n, dtype=torch.int64)
        self.steps = 0

    def add(self, spikes):
        self.count += spikes
        self.steps += 1

    def rate(self, dt):
        return 1000 * self.count.double().mean().item() / (self.steps * dt)


def main():
    clock = Clock(start=7_200_000.0, dt=0.1)
    neurons = PoissonNeurons(torch.tensor([20.0, 40.0, 80.0, 100.0]).repeat(50), refractory=2.0, seed=5)
    monitor = Monitor(200)
    before = clock.t.clone()
    for _ in range(3000):
        monitor.add(neurons.step(clock))
    print(f"mean rate {monitor.rate(clock.dt):.1f} Hz, time passed {(clock.t - before).item():.0f} ms")


main()
