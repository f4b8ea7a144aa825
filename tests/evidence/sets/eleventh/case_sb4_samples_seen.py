"""
title: samples seen are counted in int32 by the schedule; the loss is logged in bfloat16
expect: silent:integer-overflow|overflow
thread: https://github.com/microsoft/CNTK/pull/2082
measured: samples seen -1094967296, last rate 0.2000, distance of the weights 0.353, last losses about 4
widened: samples seen 3200000000, last rate 0.0031, distance of the weights 0.051, last losses about 3

Expectation, written first: the count passes 2147483647 on a resumed run and turns negative; the rate climbs back to
that of the start. The logged losses are printed whole, for which bfloat16 is enough.
"""
import io

import torch
from torch import nn


class SampleClock(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros((), dtype=torch.int32))  # BORN

    def tick(self, n):
        self.seen += n
        return self.seen.item()


class SampleSchedule:
    """halves the rate every half billion samples"""

    def __init__(self, base=0.2, half_life=500_000_000):
        self.base, self.half_life = base, half_life

    def rate(self, seen):
        return self.base * 0.5 ** (max(seen, 0) // self.half_life)


class Log:
    def __init__(self):
        self.losses = []

    def add(self, loss):
        self.losses.append(loss.detach().to(torch.bfloat16))

    def last(self):
        return torch.stack(self.losses[-5:]).float().mean().item()


class Run:
    def __init__(self, samples_per_step):
        torch.manual_seed(0)
        self.model = nn.Linear(4, 1, bias=False)
        self.clock, self.schedule, self.log = SampleClock(), SampleSchedule(), Log()
        self.per_step = samples_per_step

    def step(self, gen):
        x = torch.randn(32, 4, generator=gen)
        y = x.sum(1, keepdim=True) + 2.0 * torch.randn(32, 1, generator=gen)
        loss = (self.model(x) - y).pow(2).mean()
        (grad,) = torch.autograd.grad(loss, [self.model.weight])
        rate = self.schedule.rate(self.clock.tick(self.per_step))
        with torch.no_grad():
            self.model.weight -= rate * grad
        self.log.add(loss)
        return rate


def main():
    gen = torch.Generator().manual_seed(1)
    first = Run(samples_per_step=20_000_000)
    for _ in range(100):
        first.step(gen)
    saved = io.BytesIO()
    torch.save({"model": first.model.state_dict(), "clock": first.clock.state_dict()}, saved)
    saved.seek(0)
    state = torch.load(saved)
    again = Run(samples_per_step=20_000_000)
    again.model.load_state_dict(state["model"])
    again.clock.load_state_dict(state["clock"])
    for _ in range(60):
        rate = again.step(gen)
    miss = (again.model.weight - 1).norm().item()
    print(f"samples seen {again.clock.seen.item()}, last rate {rate:.4f}, distance of the weights {miss:.3f}, last losses about {again.log.last():.0f}")


main()
