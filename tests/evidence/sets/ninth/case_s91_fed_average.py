"""
title: federated averaging adds float updates into every buffer, the batch counter too
expect: collision
thread: https://github.com/AI-secure/DBA/issues/1
fix_at: 52

Expectation, written first: the aggregate runs over the whole state dict; BatchNorm's
num_batches_tracked is int64, the mean update is float because of the weighting, and
the in-place add refuses. Birth: the weighting that made it float for that entry.
"""
import copy

import torch
from torch import nn


def make_net():
    return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))


class Client:
    def __init__(self, seed, n):
        gen = torch.Generator().manual_seed(seed)
        self.x = torch.randn(n, 6, generator=gen)
        self.y = (self.x[:, 0] > 0).long() + (self.x[:, 1] > 0.5).long()

    def train(self, global_state, epochs=2):
        net = make_net()
        net.load_state_dict(copy.deepcopy(global_state))
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(epochs):
            loss = nn.functional.cross_entropy(net(self.x), self.y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        return net.state_dict(), len(self.x)


class Server:
    def __init__(self):
        torch.manual_seed(0)
        self.net = make_net()

    def aggregate(self, results):
        total = sum(n for _, n in results)
        state = self.net.state_dict()
        for name, current in state.items():
            update = torch.zeros_like(current)
            for local, n in results:
                delta = (local[name] - current) * (n / total)  # BORN
                update = update + delta
            current.add_(update)  # COLLIDES

    def evaluate(self, client):
        self.net.eval()
        with torch.no_grad():
            acc = (self.net(client.x).argmax(1) == client.y).float().mean()
        self.net.train()
        return acc.item()


server = Server()
clients = [Client(s, n) for s, n in ((1, 40), (2, 60), (3, 100))]
for rnd in range(3):
    results = [c.train(server.net.state_dict()) for c in clients]
    server.aggregate(results)
    print("round", rnd, "acc", round(server.evaluate(clients[-1]), 3))
