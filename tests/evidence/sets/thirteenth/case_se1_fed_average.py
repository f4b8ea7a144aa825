"""
title: the server of a federated run averages the clients' state dicts into the global model
expect: collision
thread: https://github.com/AI-secure/DBA/issues/1
fix_at: 54, 55

Expectation, written first: the state dict also holds BatchNorm's int64 counter; its averaged update is a float
number, and adding it in place to the counter is refused.
"""
import copy

import torch
import torch.nn.functional as F
from torch import nn


class BasicBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(width)

    def forward(self, x):
        return F.relu(x + self.bn(self.conv(x)))


class SmallResNet(nn.Module):
    def __init__(self, classes=4, width=8):
        super().__init__()
        self.stem = nn.Conv2d(1, width, 3, padding=1)
        self.body = nn.Sequential(BasicBlock(width), BasicBlock(width))
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        return self.head(self.body(self.stem(x)).mean((2, 3)))


class Helper:
    def __init__(self, eta=0.8, clients=3):
        self.eta, self.clients = eta, clients
        self.target_model = SmallResNet()

    def init_weight_accumulator(self):
        return {name: torch.zeros_like(data) for name, data in self.target_model.state_dict().items()}

    def accumulate_weight(self, accumulator, epochs_submit_update):
        for update in epochs_submit_update:
            for name, value in update.items():
                accumulator[name].add_(value)
        return accumulator

    def average_shrink_models(self, accumulator):
        for name, data in self.target_model.state_dict().items():
            update_per_layer = accumulator[name] * (self.eta / self.clients)  # BORN
            data.add_(update_per_layer)  # COLLIDES


def local_train(global_model, images, labels, steps=4):
    model = copy.deepcopy(global_model)
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for _ in range(steps):
        opt.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        opt.step()
    before = global_model.state_dict()
    return {name: value - before[name] for name, value in model.state_dict().items()}


def client_data(gen, n=16):
    labels = torch.randint(0, 4, (n,), generator=gen)
    images = torch.randn(n, 1, 8, 8, generator=gen) + labels[:, None, None, None]
    return images, labels


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(7)
    helper = Helper()
    data = [client_data(gen) for _ in range(helper.clients)]
    for epoch in range(2):
        updates = [local_train(helper.target_model, *d) for d in data]
        accumulator = helper.accumulate_weight(helper.init_weight_accumulator(), updates)
        helper.average_shrink_models(accumulator)
    images, labels = client_data(gen, 64)
    with torch.no_grad():
        print(f"global loss {F.cross_entropy(helper.target_model(images), labels).item():.4f}")


main()
