"""
title: the last observed step of every pedestrian is picked with lengths made by the torch.Tensor constructor
expect: collision
thread: https://github.com/meaten/FlowChain-ICCV2023/issues/3
fix_at: 36, 46, 47, 58, 66, 67

Expectation, written first: torch.Tensor(list) is float32 whatever the list holds; the lengths survive the
subtraction as floats and the advanced index into the encoder's outputs is refused.
"""
import math

import torch
from torch import nn


class Scene:
    """tracks of several people; those who came late or left have NaN rows"""

    def __init__(self, people, steps, gen):
        start = torch.randn(people, 1, 2, generator=gen)
        heading = torch.rand(people, 1, generator=gen) * 2 * math.pi
        speed = 0.1 + 0.3 * torch.rand(people, 1, generator=gen)
        t = torch.arange(steps)[None, :] * speed
        self.tracks = start + torch.stack((t * heading.cos(), t * heading.sin()), -1)
        for k in range(people):
            self.tracks[k, steps - k % 4 :] = float("nan")

    def lengths(self):
        return [int((~track[:, 0].isnan()).sum()) for track in self.tracks]


def collate(scene):
    lengths = scene.lengths()
    x = scene.tracks.nan_to_num(0.0)
    velocity = torch.diff(x, dim=1, prepend=x[:, :1])
    return torch.cat((x, velocity), -1), torch.Tensor(lengths)  # BORN


class HistoryEncoder(nn.Module):
    def __init__(self, hidden=16):
        super().__init__()
        self.rnn = nn.GRU(4, hidden, batch_first=True)

    def forward(self, history, lengths):
        outputs, _ = self.rnn(history)
        last = lengths - 1
        return outputs[torch.arange(len(history)), last]  # COLLIDES


class Forecaster(nn.Module):
    def __init__(self, horizon=6):
        super().__init__()
        self.horizon = horizon
        self.encoder = HistoryEncoder()
        self.decoder = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 2 * horizon))

    def forward(self, history, lengths):
        h = self.encoder(history, lengths)
        return self.decoder(h).view(-1, self.horizon, 2)


def main():
    gen = torch.Generator().manual_seed(4)
    torch.manual_seed(4)
    model = Forecaster()
    history, lengths = collate(Scene(8, 9, gen))
    future = model(history, lengths)
    print(tuple(future.shape), round(future.abs().mean().item(), 4))


main()
