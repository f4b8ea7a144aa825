"""
title: federated averaging scales the accumulated updates of every entry of the state, counters too
expect: collision
thread: https://github.com/AI-secure/DBA/issues/1
fix_at: 65, 68, 71, 72

Expectation, written first: batch norm keeps an int64 counter in the state; its accumulated difference is scaled by
a fraction and becomes float32, and the in-place addition will not put a float into a long.
"""
import copy
from collections import OrderedDict

import torch
import torch.nn.functional as F
from torch import nn


class ResidualNet(nn.Module):
    def __init__(self, width=12, classes=3):
        super().__init__()
        self.conv1 = nn.Conv2d(1, width, 3, padding=1)
        self.bn1, self.bn2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1)
        self.linear = nn.Linear(width, classes)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(x + self.bn2(self.conv2(x)))
        return self.linear(x.mean((2, 3)))


class Participant:
    def __init__(self, seed, poisoned=False):
        gen = torch.Generator().manual_seed(seed)
        self.y = torch.randint(0, 3, (24,), generator=gen)
        self.x = torch.randn(24, 1, 8, 8, generator=gen) + self.y[:, None, None, None]
        if poisoned:
            self.x[:8, :, :2, :2], self.y[:8] = 3.0, 0

    def local_model(self, target, epochs=2):
        model = copy.deepcopy(target)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        for _ in range(epochs):
            for x, y in zip(self.x.split(8), self.y.split(8)):
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
        return model.state_dict()


class Helper:
    def __init__(self, eta=0.1, no_models=4):
        self.eta, self.no_models = eta, no_models
        self.target_model = ResidualNet()

    def init_weight_accumulator(self):
        return OrderedDict((name, torch.zeros_like(data)) for name, data in self.target_model.state_dict().items())

    def accumulate(self, accumulator, local):
        for name, data in self.target_model.state_dict().items():
            accumulator[name].add_(local[name] - data)

    def shrink(self, accumulator):
        scale = self.eta / self.no_models
        return {name: update * scale for name, update in accumulator.items()}  # BORN

    def average_shrink_models(self, accumulator):
        updates = self.shrink(accumulator)
        with torch.no_grad():
            for name, data in self.target_model.state_dict().items():
                update_per_layer = updates[name]
                data.add_(update_per_layer)  # COLLIDES


def main(rounds=2):
    torch.manual_seed(6)
    helper = Helper()
    everyone = [Participant(seed, poisoned=seed == 0) for seed in range(4)]
    for _ in range(rounds):
        accumulator = helper.init_weight_accumulator()
        for one in everyone:
            helper.accumulate(accumulator, one.local_model(helper.target_model))
        helper.average_shrink_models(accumulator)
    helper.target_model.eval()
    clean = everyone[1]
    print("accuracy", (helper.target_model(clean.x).argmax(1) == clean.y).float().mean().item())


main()
