"""
title: Federated averaging adds a float update to BatchNorm's integer batch counter
expect: collision
thread: https://github.com/AI-secure/DBA/issues/1
culprit: 1.num_batches_tracked

Expectation, written first.  The server walks over the whole state_dict and
adds eta / n_clients times the summed client differences.  For the weights that
is float into float; for num_batches_tracked the multiplication by the Python
float turns the int64 sum into float32 and the in-place add into the int64
buffer is refused.  BORN is the line that scales the sum; rounding the scaled
update back to the buffer's dtype (or skipping integer buffers) mends it.
"""
import copy

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.AdaptiveAvgPool2d(2),
                         nn.Flatten(), nn.Linear(24, 4))


def local_training(global_model, seed, steps=3):
    model = copy.deepcopy(global_model).train()
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    g = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        x = torch.randn(8, 1, 10, 10, generator=g)
        y = torch.randint(0, 4, (8,), generator=g)
        opt.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        opt.step()
    return model


class Server:
    def __init__(self, model, eta=0.8):
        self.model, self.eta = model, eta

    def collect(self, clients):
        accumulator = {k: torch.zeros_like(v) for k, v in self.model.state_dict().items()}
        for client in clients:
            for name, data in client.state_dict().items():
                accumulator[name].add_(data - self.model.state_dict()[name])
        return accumulator

    def aggregate(self, clients):
        accumulator = self.collect(clients)
        for name, data in self.model.state_dict().items():
            update_per_layer = accumulator[name] * (self.eta / len(clients))  # BORN
            data.add_(update_per_layer)  # COLLIDES


if __name__ == "__main__":
    server = Server(Net())
    for rnd in range(3):
        server.aggregate([local_training(server.model, 10 * rnd + c) for c in range(4)])
    print("rounds done, batches tracked =", server.model[1].num_batches_tracked.item())
