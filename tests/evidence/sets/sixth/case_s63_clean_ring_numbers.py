"""
title: packets carry an eight-bit number that wraps on purpose, differences are taken modulo 256
expect: clean

After https://github.com/scikit-learn/scikit-learn/pull/33391 (unsigned wraps) and https://github.com/rixwew/pytorch-fm/issues/30.
"""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(804)


class Sender:
    def __init__(self, rate=0.02):
        self.rate = rate

    def packets(self, count):
        """Numbers of the packets that arrived; some are lost, some are late by one."""
        number = torch.arange(count)
        arrived = number[torch.rand(count) > self.rate]
        swap = torch.rand(len(arrived)) < 0.05
        order = (arrived.float() + 1.5 * swap).argsort()
        return arrived[order].to(torch.uint8), arrived[order]


def unroll(numbers):
    """Whole numbers from wrapped ones: a step is the signed difference modulo 256."""
    steps = (numbers[1:] - numbers[:-1]).view(torch.int8).long()
    return torch.cat([numbers[:1].long(), numbers[0].long() + steps.cumsum(0)])


class Loss(nn.Module):
    """Guesses the share of lost packets from the gaps of a window."""

    def __init__(self, window=64):
        super().__init__()
        self.window, self.out = window, nn.Linear(2, 1)

    def forward(self, numbers):
        gaps = numbers.unfold(0, self.window, self.window).diff(dim=1).float()
        return self.out(torch.stack([gaps.mean(1), gaps.std(1)], dim=1))[:, 0]


model = Loss()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-2)
for step in range(150):
    rate = 0.01 + 0.15 * torch.rand(()).item()
    wrapped, whole = Sender(rate).packets(1000)
    loss = F.mse_loss(model(unroll(wrapped)), torch.full((len(wrapped) // 64,), rate))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
wrapped, whole = Sender(0.1).packets(2000)
with torch.no_grad():
    guess = model(unroll(wrapped)).mean().item()
print("numbers right", (unroll(wrapped) - whole).eq(0).all().item(), "guess", round(guess, 3))
