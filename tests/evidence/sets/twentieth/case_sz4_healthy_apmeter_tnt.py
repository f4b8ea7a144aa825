"""
title: an average-precision meter keeps its targets as uint8 and takes their running sum
expect: clean
thread: https://github.com/meta-pytorch/tnt/pull/128
measured: positives [824, 694, 773] ; average precision [0.6957, 0.6314, 0.6815] ; counted in Python [0.6957, 0.6314, 0.6815]
suspect: 22 promotes (the running sum of a uint8 is an int64)

Expectation, written first: there are far more than 255 positives and the targets are uint8, so their cumulative sum looks bound to wrap; torch
accumulates integers in int64, the precision is then taken in float32 and averaged over the positions where a boolean mask is true. The meter agrees
with a plain count in Python.
"""
import torch
from torch import nn


class APMeter:
    def __init__(self):
        self.reset()

    def reset(self):
        self.scores = torch.zeros(0)
        self.targets = torch.zeros(0, dtype=torch.uint8)

    def add(self, output, target):
        self.scores = torch.cat([self.scores, output.detach()])
        self.targets = torch.cat([self.targets, target.to(self.targets.dtype)])

    def value(self):
        ap = torch.zeros(self.scores.shape[1])
        rank = torch.arange(1, self.scores.shape[0] + 1).float()
        for k in range(self.scores.shape[1]):
            order = self.scores[:, k].argsort(descending=True)
            truth = self.targets[order, k]
            tp = truth.cumsum(0).float()
            precision = tp / rank
            ap[k] = precision[truth.bool()].sum() / max(float(truth.sum()), 1)
        return ap


class MultiLabelHead(nn.Module):
    def __init__(self, dim=12, labels=3):
        super().__init__()
        self.fc = nn.Linear(dim, labels)

    def forward(self, x):
        return self.fc(x).sigmoid()


def plain_average_precision(scores, targets):
    pairs = sorted(zip(scores, targets), key=lambda p: -p[0])
    hits, total = 0, 0.0
    for n, (_, t) in enumerate(pairs, 1):
        if t:
            hits += 1
            total += hits / n
    return total / max(hits, 1)


@torch.no_grad()
def main():
    torch.manual_seed(3)
    head, meter = MultiLabelHead(), APMeter()
    meter.scores = torch.zeros(0, 3)
    meter.targets = meter.targets.view(0, 3)
    for _ in range(20):
        x = torch.randn(100, 12)
        scores = head(x)
        target = (head.fc(x) + torch.randn(100, 3) > 0.2).long()
        meter.add(scores, target)
    ap = meter.value()
    plain = [plain_average_precision(meter.scores[:, k].tolist(), meter.targets[:, k].tolist()) for k in range(3)]
    print("positives", meter.targets.sum(0).tolist())
    print("average precision", [round(v, 4) for v in ap.tolist()])
    print("counted in Python", [round(v, 4) for v in plain])


main()
