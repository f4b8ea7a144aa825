"""
title: the correlation coefficient of Matthews is computed with the integers of the confusion matrix
expect: silent:overflow|integer-overflow|wraparound
thread: https://github.com/haifengl/smile/pull/879
measured: accuracy 0.904, Matthews -0.611
widened: accuracy 0.904, Matthews +0.809

Expectation, written first: fifty thousand times fifty thousand is above 2**31 and wraps in int32; a classifier that is
right nine times out of ten gets a negative coefficient. The predictions are uint8 and the counts themselves are far
below the limit.
"""
import torch


class ConfusionMatrix:
    def __init__(self, classes=2):
        self.classes = classes
        self.counts = torch.zeros(classes, classes, dtype=torch.int32)  # BORN

    def update(self, truth, prediction):
        cell = truth.long() * self.classes + prediction.long()
        self.counts += torch.bincount(cell, minlength=self.classes**2).view_as(self.counts).to(self.counts.dtype)

    def accuracy(self):
        return self.counts.diagonal().sum() / self.counts.sum()

    def matthews(self):
        (tn, fp), (fn, tp) = self.counts
        numerator = tp * tn - fp * fn  # BORN
        sides = torch.stack([tp + fp, tp + fn, tn + fp, tn + fn]).double()
        return numerator / sides.prod().sqrt()


class Classifier:
    def __init__(self, separation):
        self.separation = separation

    def __call__(self, signal):
        return (signal > self.separation / 2).to(torch.uint8)


def draw(n, separation, gen):
    truth = torch.randint(0, 2, (n,), generator=gen)
    return truth, separation * truth + torch.randn(n, generator=gen)


def main():
    gen = torch.Generator().manual_seed(26)
    separation = 2.6
    matrix, classify = ConfusionMatrix(), Classifier(separation)
    for _ in range(11):
        truth, signal = draw(10_000, separation, gen)
        matrix.update(truth, classify(signal))
    print(f"accuracy {matrix.accuracy():.3f}, Matthews {matrix.matthews():+.3f}")


main()
