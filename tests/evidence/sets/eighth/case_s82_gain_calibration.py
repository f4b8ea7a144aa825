"""
title: calibrating the gains of a sensor array, starting from one
expect: silent:lost-update|precision-loss|downcast
thread: https://github.com/workofart/ml-by-hand/pull/85
measured: gains moved 0 of 24, mean error 0.0409
widened: gains moved 24 of 24, mean error 0.0000

Expectation, written first: the gains start at 1 and a step of 6e-4 is less than half
the distance of 1 to the next bf16 number, so no gain ever moves and the error stays.
BORN is the cast of the model to bf16; float32 parameters converge.
"""
import torch
from torch import nn


class SensorArray:
    def __init__(self, sensors, seed):
        self.gen = torch.Generator().manual_seed(seed)
        self.true_gain = 1 + 0.08 * torch.rand(sensors, generator=self.gen)
        self.sensors = sensors

    def expose(self, n=32):
        light = 0.5 + torch.rand(n, self.sensors, generator=self.gen)
        return light / self.true_gain, light


class GainModel(nn.Module):
    def __init__(self, sensors):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(sensors))

    def forward(self, reading):
        return reading * self.gain


class Calibrator:
    def __init__(self, model, lr):
        self.model = model
        self.opt = torch.optim.Adam(model.parameters(), lr)

    def run(self, array, steps):
        dtype = self.model.gain.dtype
        for _ in range(steps):
            reading, light = array.expose()
            out = self.model(reading.to(dtype))
            loss = (out - light.to(dtype)).square().mean()
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()


def main():
    torch.manual_seed(0)
    array = SensorArray(24, seed=2)
    model = GainModel(24)
    model.to(torch.bfloat16)  # BORN
    Calibrator(model, lr=6e-4).run(array, steps=400)
    gain = model.gain.detach().float()
    moved = int((gain != 1).sum())
    error = (gain - array.true_gain).abs().mean().item()
    print("gains moved %d of 24, mean error %.4f" % (moved, error))


if __name__ == "__main__":
    main()
