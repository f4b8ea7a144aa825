"""
title: a bfloat16 classifier is evaluated by integer counts and a float64 loss, for many small batches
expect: clean

After https://github.com/MaigoAkisame/cmu-thesis/issues/7 and https://github.com/pytorch/xla/pull/2425.
"""
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(809)


@dataclass
class Tally:
    matrix: torch.Tensor = field(default_factory=lambda: torch.zeros(3, 3, dtype=torch.int64))
    loss: float = 0.0
    count: int = 0

    def add(self, logits, labels):
        guess = logits.argmax(-1)
        self.matrix += torch.bincount(labels * 3 + guess, minlength=9).view(3, 3)
        self.loss += F.cross_entropy(logits.float(), labels, reduction="sum").item()
        self.count += len(labels)

    def report(self):
        hit = self.matrix.diagonal().double()
        f1 = 2 * hit / (self.matrix.sum(0) + self.matrix.sum(1)).clamp(min=1)
        return self.loss / self.count, f1.mean().item()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 32), nn.Linear(32, 3)

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)))


def batch(count):
    x = torch.randn(count, 6)
    return x, ((x[:, 0] > 0).long() + (x[:, 1] + x[:, 2] > 0.5).long())


model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(150):
    x, y = batch(64)
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
small, tally, wide = Net().to(torch.bfloat16), Tally(), Tally()
small.load_state_dict(model.state_dict())
with torch.no_grad():
    for _ in range(150):
        x, y = batch(16)
        tally.add(small(x.bfloat16()), y)
        wide.add(model(x), y)
print("loss, f1", [round(v, 2) for v in tally.report()], "in float32", [round(v, 2) for v in wide.report()])
