"""
title: a forecasting pipeline brings the history to the model's bfloat16 before it is scaled
expect: silent:precision-loss|downcast|round-trip
thread: https://github.com/TimeCopilot/timecopilot/issues/307
measured: MASE 1.8
widened: MASE 0.7

Expectation, written first: series around twenty thousand that move by a hundred are rounded to multiples of 128
before their mean is taken off. The network itself is bfloat16 as well, but sees numbers of order one, which costs
nothing that the score shows.
"""
import torch
from torch import nn


class InstanceNorm:
    def __call__(self, x):
        self.loc = x.float().mean(-1, keepdim=True)
        self.scale = x.float().std(-1, keepdim=True).clamp(min=1e-6)
        return (x.float() - self.loc) / self.scale

    def inverse(self, y):
        return y.float() * self.scale + self.loc


class SeasonalNet(nn.Module):
    """repeats the mean season of its history, with one weight a season"""

    def __init__(self, period, seasons):
        super().__init__()
        self.period = period
        self.weights = nn.Parameter(torch.full((seasons,), 1 / seasons))

    def forward(self, x):
        seasons = x[:, -self.period * len(self.weights) :].unflatten(-1, (-1, self.period))
        return (self.weights[:, None] * seasons).sum(1)


class Pipeline:
    def __init__(self, net):
        self.net = net.to(torch.bfloat16)
        self.norm = InstanceNorm()

    @torch.no_grad()
    def predict(self, history):
        history = history.to(torch.bfloat16)  # BORN
        scaled = self.norm(history)
        return self.norm.inverse(self.net(scaled.to(self.net.weights.dtype)))


def mase(pred, future, history, period):
    naive = (history[:, period:] - history[:, :-period]).abs().mean(-1)
    return ((pred - future).abs().mean(-1) / naive).mean()


def main():
    gen = torch.Generator().manual_seed(10)
    period, t = 24, torch.arange(24 * 17)
    level = 18_000 + 6_000 * torch.rand(200, 1, generator=gen)
    phase = 6.3 * torch.rand(200, 1, generator=gen)
    series = level + 60 * torch.sin(2 * torch.pi * t / period + phase) + 12 * torch.randn(200, len(t), generator=gen)
    history, future = series[:, :-period], series[:, -period:]
    pred = Pipeline(SeasonalNet(period, seasons=16)).predict(history)
    print(f"MASE {mase(pred, future, history, period):.1f}")


main()
