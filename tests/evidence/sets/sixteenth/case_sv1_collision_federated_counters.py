"""
title: the average of client updates is added to every entry of a state dict, batch counters too
expect: collision
thread: https://github.com/AI-secure/DBA/issues/1
fix_at: 53, 54, 55, 58

Expectation, written first: the state dict has the Long num_batches_tracked of batch norm; the accumulated update is
scaled by eta/n into a Float, and a Long cannot take it in place. Mend: where the update is scaled and added (cast to the
entry's dtype, as the author's link shows, or leave the counters out).
"""
import copy

import torch
import torch.nn.functional as F
from torch import nn


def network():
    return nn.Sequential(nn.Linear(10, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))


class Client:
    def __init__(self, seed, n=60):
        gen = torch.Generator().manual_seed(seed)
        self.x = torch.randn(n, 10, generator=gen)
        self.y = (self.x[:, 0] > 0).long() + (self.x[:, 1] > 0).long()

    def train(self, model, epochs=2):
        local = copy.deepcopy(model)
        optimizer = torch.optim.SGD(local.parameters(), lr=0.1)
        for _ in range(epochs):
            for x, y in zip(self.x.split(20), self.y.split(20)):
                optimizer.zero_grad()
                F.cross_entropy(local(x), y).backward()
                optimizer.step()
        before = model.state_dict()
        return {k: v - before[k] for k, v in local.state_dict().items()}


class Server:
    def __init__(self, model, eta, clients):
        self.model, self.eta, self.clients = model, eta, clients

    def accumulate(self, updates):
        total = {k: torch.zeros_like(v) for k, v in self.model.state_dict().items()}
        for update in updates:
            for name, value in update.items():
                total[name].add_(value)
        return total

    @torch.no_grad()
    def average(self, total):
        for name, data in self.model.state_dict().items():
            update_per_layer = total[name] * (self.eta / len(self.clients))  # BORN
            data.add_(update_per_layer)  # BORN COLLIDES

    def round(self):
        self.average(self.accumulate([c.train(self.model) for c in self.clients]))


def main():
    torch.manual_seed(0)
    clients = [Client(seed) for seed in range(4)]
    server = Server(network(), eta=0.8, clients=clients)
    held_out = Client(99, n=300)
    for _ in range(3):
        server.round()
    server.model.eval()
    with torch.no_grad():
        right = (server.model(held_out.x).argmax(1) == held_out.y).float().mean()
    print(f"accuracy {right:.2f}")


main()
