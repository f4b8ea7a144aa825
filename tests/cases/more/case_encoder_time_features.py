"""
title: hours turned into a list of sines and cosines widen what a half TransformerEncoder reads
expect: collision

The measured values are half. The features of the clock are Python floats in a list of lists, so they are float32,
and joined with the values they make everything so; torch's own encoder layer raises deep inside.
"""
import math
from dataclasses import dataclass

import torch
from torch import nn


@dataclass(frozen=True)
class Clock:
    period: float = 24.0
    waves: tuple[int, ...] = (1, 2, 4)

    def features(self, hours):
        return torch.tensor(  # BORN
            [
                [
                    wave(2 * math.pi * speed * hour / self.period)
                    for speed in self.waves
                    for wave in (math.sin, math.cos)
                ]
                for hour in hours
            ]
        )


class Forecaster(nn.Module):
    def __init__(self, channels, clock):
        super().__init__()
        width = channels + 2 * len(clock.waves)
        self.clock = clock
        layer = nn.TransformerEncoderLayer(width, 2, 4 * width, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers=2)
        self.out = nn.Linear(width, channels)

    def forward(self, values, hours):
        time = self.clock.features(hours).expand(len(values), -1, -1)
        hidden = self.encoder(torch.cat([values, time], dim=-1))  # COLLIDES
        return self.out(hidden[:, -1])


torch.manual_seed(0)
forecaster = Forecaster(channels=2, clock=Clock()).half()
print(forecaster(torch.randn(3, 12, 2).half(), range(12)).shape)
