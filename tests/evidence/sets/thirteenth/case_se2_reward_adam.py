"""
title: a reward model is tuned in float16 with Adam's usual epsilon
expect: silent:underflow|overflow
thread: https://github.com/CambioML/pykoi/pull/69
measured: loss nan, pairs ranked right 0.0%
widened: loss 0.514, pairs ranked right 73.8%

Expectation, written first: Adam's state takes the dtype of the parameters; squares of small gradients vanish in it
and 1e-8 vanishes as well, so the denominator is zero and the head becomes NaN. The innocent suspect is the frozen
language model, in float16 too: it gets no update, and widening it alone leaves the NaN.
"""
import torch
import torch.nn.functional as F
from torch import nn


class Backbone(nn.Module):
    def __init__(self, vocab=200, width=48):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.mix = nn.Linear(width, width)

    def forward(self, ids):
        return torch.tanh(self.mix(self.embed(ids))).mean(1)


class RewardHead(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.hidden = nn.Linear(width, width)
        self.score = nn.Linear(width, 1, bias=False)

    def forward(self, x):
        return self.score(torch.relu(self.hidden(x)))[:, 0]


class RewardModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = Backbone().half().requires_grad_(False)
        self.head = RewardHead().half()  # BORN

    def forward(self, ids):
        features = self.backbone(ids)
        return self.head(features.to(self.head.score.weight.dtype)).float()


class Preferences:
    """chosen answers hold more of the good words than rejected ones"""

    def __init__(self, gen):
        self.gen = gen

    def batch(self, n, length=12):
        chosen = torch.randint(0, 200, (n, length), generator=self.gen)
        rejected = torch.randint(0, 200, (n, length), generator=self.gen)
        return torch.where(torch.rand(n, length, generator=self.gen) < 0.5, chosen % 60, chosen), rejected


def pair_loss(model, chosen, rejected):
    return -F.logsigmoid(model(chosen) - model(rejected)).mean()


def train(model, data, steps):
    optimizer = torch.optim.Adam(model.head.parameters(), lr=2e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        pair_loss(model, *data.batch(64)).backward()
        optimizer.step()


def main():
    torch.manual_seed(3)
    model = RewardModel()
    data = Preferences(torch.Generator().manual_seed(4))
    train(model, data, 150)
    with torch.no_grad():
        chosen, rejected = data.batch(1000)
        loss = pair_loss(model, chosen, rejected).item()
        right = (model(chosen) > model(rejected)).double().mean().item()
    print(f"loss {loss:.3f}, pairs ranked right {100 * right:.1f}%")


main()
