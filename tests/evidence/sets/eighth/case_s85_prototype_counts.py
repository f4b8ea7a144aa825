"""
title: class prototypes gathered from half-precision features
expect: silent:lost-update|precision-loss|downcast
thread: https://github.com/numpy/numpy/issues/15785
measured: counts [2048, 1163], largest entry of a mean of tanh values 3.023
widened: counts [6837, 1163], largest entry of a mean of tanh values 0.906

Expectation, written first: the counter of each class is made like the stored
prototypes' features (half) and grows by one; at 2048 it stands still, so the class sum is
divided by too small a number. BORN is the new_zeros of the counter; float32 there mends it.
The explicit half of the final prototypes is a plain rounding.
"""
import torch
from torch import nn


class Backbone(nn.Module):
    """Delivers half features whatever the parameters are."""

    def __init__(self, dim):
        super().__init__()
        self.lin = nn.Linear(dim, dim)

    def forward(self, x):
        return torch.tanh(self.lin(x)).half()


class Prototypes:
    def __init__(self, classes, dim):
        self.classes = classes
        self.sums = torch.zeros(classes, dim)
        self.counts = None

    def add(self, features, labels):
        if self.counts is None:
            self.counts = features.new_zeros(self.classes)  # BORN
        self.sums.index_add_(0, labels, features.float())
        for label in labels.tolist():
            self.counts[label] += 1

    def result(self):
        mean = self.sums / self.counts.float()[:, None]
        return mean.to(torch.float16)


class Stream:
    def __init__(self, dim, seed):
        self.gen = torch.Generator().manual_seed(seed)
        self.dim = dim

    def batch(self, n=250):
        labels = (torch.rand(n, generator=self.gen) < 0.15).long()
        x = torch.randn(n, self.dim, generator=self.gen) + 2.0 * (1 - 2 * labels[:, None].float())
        return x, labels


@torch.no_grad()
def main():
    torch.manual_seed(0)
    backbone, protos, stream = Backbone(8), Prototypes(2, 8), Stream(8, seed=0)
    for _ in range(32):
        x, labels = stream.batch()
        protos.add(backbone(x), labels)
    result = protos.result().float()
    print("counts %s, largest entry of a mean of tanh values %.3f"
          % ([int(c) for c in protos.counts], result.abs().max().item()))


if __name__ == "__main__":
    main()
