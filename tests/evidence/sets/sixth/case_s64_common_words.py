"""
title: the weight of common words is the logarithm of one plus a small ratio, in float16; the document lengths may be half
expect: silent:precision-loss|downcast|cancellation
"""
import torch

torch.manual_seed(920)


class Documents:
    def __init__(self, count=8000, words=40):
        share = torch.linspace(0.9999, 0.985, words)
        self.has = torch.rand(count, words) < share
        self.length = torch.randint(50, 2000, (count,))


def weights(documents):
    n = len(documents.has)
    seen = documents.has.sum(0).double()
    ratio = (n - seen + 0.5) / (seen + 0.5)
    inside = 1 + ratio
    inside = inside.half().double()  # BORN
    return inside.log()


def rank(documents):
    """The score of a document is the weight of its words by its length."""
    length = documents.length.half().double()
    return (documents.has.double() @ weights(documents)) / (0.25 + 0.75 * length / documents.length.double().mean())


documents = Documents()
n, seen = len(documents.has), documents.has.sum(0).double()
exact = torch.log1p((n - seen + 0.5) / (seen + 0.5))
w = weights(documents)
print("weights off by", round(((w - exact).abs() / exact).mean().item(), 3), "words without weight", int((w == 0).sum()), "mean score",
      round(rank(documents).mean().item(), 4))
