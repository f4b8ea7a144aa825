"""
title: a federated server adds the clients' mean update to every entry of the state, the batch counters are integers
expect: collision
fix_at: 25, 33, 34

After https://github.com/AI-secure/DBA/issues/1 and https://github.com/AI-secure/DBA/issues/12.
Right: the update of a counter is cast to the counter's dtype.
"""
import copy

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(2)


class Server:
    def __init__(self, model, rate=0.5):
        self.model, self.rate = model, rate

    def collected(self, clients):
        before = self.model.state_dict()
        gathered = {name: torch.zeros(value.shape) for name, value in before.items()}  # BORN
        for client in clients:
            for name, value in client.state_dict().items():
                gathered[name] += value - before[name]
        return gathered

    def merge(self, clients):
        gathered = self.collected(clients)
        for name, value in self.model.state_dict().items():
            change = gathered[name] * (self.rate / len(clients))
            value.add_(change)  # COLLIDES


def client_of(model, seed):
    own = copy.deepcopy(model)
    optimizer = torch.optim.SGD(own.parameters(), lr=0.1)
    draw = torch.Generator().manual_seed(seed)
    for _ in range(4):
        x = torch.randn(16, 10, generator=draw)
        loss = F.cross_entropy(own(x), (x[:, 0] > 0).long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return own


server = Server(nn.Sequential(nn.Linear(10, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2)))
for turn in range(2):
    server.merge([client_of(server.model, seed) for seed in range(3)])
    print(turn, round(sum(p.abs().sum().item() for p in server.model.parameters()), 3))
