"""
title: a CRF with forbidden transitions of -inf does its forward recursion in log space
expect: clean
thread: https://github.com/kmkurn/pytorch-crf/issues/30
measured: agrees True, loss falls True, finite True

Expectation, written first: -inf is the zero of log space and logsumexp is made for it; every tag can be reached from
the second position on, so nothing becomes NaN. The float32 partition function agrees with an enumeration of all
paths in float64, and training lowers the loss.
"""
import itertools

import torch
from torch import nn

TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]


def forbidden():
    mask = torch.zeros(len(TAGS), len(TAGS))
    start = torch.zeros(len(TAGS))
    for j, tag in enumerate(TAGS):
        if tag.startswith("I-"):
            start[j] = float("-inf")
            for i, before in enumerate(TAGS):
                if before not in (f"B-{tag[2:]}", tag):
                    mask[i, j] = float("-inf")
    return start, mask


class CRF(nn.Module):
    def __init__(self):
        super().__init__()
        start, mask = forbidden()
        self.register_buffer("start_mask", start)
        self.register_buffer("mask", mask)
        self.transitions = nn.Parameter(torch.randn(len(TAGS), len(TAGS)) * 0.1)

    def scores(self):
        return self.transitions + self.mask

    def log_partition(self, emissions):
        alpha = emissions[:, 0] + self.start_mask
        for t in range(1, emissions.shape[1]):
            alpha = torch.logsumexp(alpha[:, :, None] + self.scores(), dim=1) + emissions[:, t]
        return torch.logsumexp(alpha, dim=1)

    def path(self, emissions, tags):
        score = emissions.gather(2, tags[:, :, None]).squeeze(2).sum(1)
        return score + self.scores()[tags[:, :-1], tags[:, 1:]].sum(1)

    def forward(self, emissions, tags):
        return (self.log_partition(emissions) - self.path(emissions, tags)).mean()


def by_hand(crf, emissions):
    start, trans, e = crf.start_mask.double(), crf.scores().double(), emissions.double()
    totals = []
    for path in itertools.product(range(len(TAGS)), repeat=e.shape[0]):
        s = start[path[0]] + e[0, path[0]]
        for t in range(1, len(path)):
            s = s + trans[path[t - 1], path[t]] + e[t, path[t]]
        totals.append(s)
    return torch.logsumexp(torch.stack(totals), 0)


def main():
    torch.manual_seed(0)
    crf, emit = CRF(), nn.Linear(6, len(TAGS))
    with torch.no_grad():
        one = torch.randn(1, 4, len(TAGS)) * 20
        gap = abs(crf.log_partition(one).double() - by_hand(crf, one[0])).item()
    x = torch.randn(16, 12, 6)
    tags = torch.tensor([0, 1, 2, 2, 0, 3, 4, 0, 1, 3, 4, 4]).expand(16, -1)
    optimizer = torch.optim.Adam([*crf.parameters(), *emit.parameters()], lr=0.05)
    losses = []
    for _ in range(60):
        loss = crf(emit(x), tags)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print(f"agrees {gap < 1e-4}, loss falls {losses[-1] < 0.7 * losses[0]}, finite {all(map(lambda v: v == v, losses))}")


main()
