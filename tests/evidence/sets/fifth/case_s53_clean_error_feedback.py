"""
title: gradients travel as bfloat16, what the cast cuts off is kept and sent along the next time
expect: clean

The right way round of https://github.com/pytorch/pytorch/pull/57410.
"""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(305)


class Link:
    """One worker's uplink. Nothing is lost for good: the remainder waits in float32."""

    def __init__(self, params):
        self.remainder = [torch.zeros_like(p, dtype=torch.float32) for p in params]

    def send(self, grads):
        sent = []
        for rest, grad in zip(self.remainder, grads):
            wanted = grad.float() + rest
            small = wanted.to(torch.bfloat16)
            rest.copy_(wanted - small.float())
            sent.append(small)
        return sent


class Hub:
    def __init__(self, params, lr):
        self.params = list(params)
        self.optimizer = torch.optim.SGD(self.params, lr=lr, momentum=0.9)

    def step(self, parcels):
        for i, p in enumerate(self.params):
            p.grad = torch.stack([parcel[i] for parcel in parcels]).float().mean(0)
        self.optimizer.step()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.out = nn.Linear(8, 48), nn.Linear(48, 48), nn.Linear(48, 1)

    def forward(self, x):
        return self.out(torch.tanh(self.second(torch.tanh(self.first(x)))))[:, 0]


def shard(worker, count=32):
    x = torch.randn(count, 8) + 0.2 * worker
    return x, torch.sin(x[:, 0] * 2) + 0.5 * x[:, 1]


model = Net()
links = [Link(list(model.parameters())) for _ in range(3)]
hub = Hub(model.parameters(), lr=0.03)
for step in range(200):
    parcels, losses = [], []
    for worker, link in enumerate(links):
        x, y = shard(worker)
        loss = F.mse_loss(model(x), y)
        parcels.append(link.send(torch.autograd.grad(loss, list(model.parameters()))))
        losses.append(loss.item())
    hub.step(parcels)
print("loss", round(sum(losses) / len(losses), 4))
