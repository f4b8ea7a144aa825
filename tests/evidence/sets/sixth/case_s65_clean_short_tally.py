"""
title: a confusion matrix of a thousand samples is counted in float16, guesses are bytes
expect: clean
"""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(954)


class Confusion:
    def __init__(self, classes):
        self.matrix = torch.zeros(classes, classes, dtype=torch.float16)

    def add(self, guess, label):
        guess = guess.to(torch.uint8).long()
        flat = torch.bincount(label * len(self.matrix) + guess, minlength=self.matrix.numel())
        self.matrix += flat.view_as(self.matrix).half()

    def accuracy(self):
        m = self.matrix.double()
        return (m.diagonal().sum() / m.sum()).item()


def batch(count):
    x = torch.randn(count, 5)
    return x, (x[:, 0] > 0).long() + (x[:, 1] > 0).long()


net = nn.Sequential(nn.Linear(5, 24), nn.Tanh(), nn.Linear(24, 3))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for step in range(100):
    x, y = batch(64)
    loss = F.cross_entropy(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
confusion, right = Confusion(3), 0
with torch.no_grad():
    for _ in range(10):
        x, y = batch(100)
        guess = net(x).argmax(-1)
        confusion.add(guess, y)
        right += (guess == y).sum().item()
print("accuracy", round(confusion.accuracy(), 3), "counted", round(right / 1000, 3))
