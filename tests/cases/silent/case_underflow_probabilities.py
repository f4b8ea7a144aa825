"""
title: joint probabilities are multiplied in float16 until nothing is left, and their logarithm is minus infinity
expect: silent:underflow
"""
import torch
import torch.nn.functional as F
from torch import nn


class Tagger(nn.Module):
    def __init__(self, width, tags):
        super().__init__()
        self.score = nn.Linear(width, tags)

    def forward(self, x):
        return F.softmax(self.score(x), dim=-1)


def loss(probability):
    joint = probability.amax(dim=-1).to(torch.float16)  # BORN
    for _ in range(4):
        joint = joint * joint
    return -joint.float().log().mean()


torch.manual_seed(0)
tagger = Tagger(16, 32)
optimizer = torch.optim.SGD(tagger.parameters(), lr=0.1)
for _ in range(2):
    value = loss(tagger(torch.randn(8, 16)))
    value.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(value.item())
