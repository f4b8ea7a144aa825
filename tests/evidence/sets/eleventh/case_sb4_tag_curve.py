"""
title: hits along a ranked list are summed in bfloat16; the scores are rounded to it as well
expect: silent:precision-loss|lost-update|downcast
thread: https://github.com/MaigoAkisame/cmu-thesis/issues/7
measured: 2966 positives, area under the curve 0.429
widened: 2966 positives, area under the curve 0.921

Expectation, written first: the running sums of hits and misses have eight bits and soon lose most of a block, so both
rates move in steps. The scores are multiples of 1/64 below four and lose nothing.
"""
import torch


class RankedList:
    def __init__(self, pred, truth):
        data = torch.stack([pred, truth.to(pred.dtype)], 1)
        order = data[:, 0].argsort(descending=True, stable=True)
        self.pred, self.truth = data[order].unbind(1)

    def counts(self):
        hit = torch.zeros((), dtype=torch.bfloat16)  # BORN
        miss = torch.zeros_like(hit)
        tp, fp = [], []
        for block in self.truth.split(16):
            hit = hit + block.sum().to(hit.dtype)
            miss = miss + (1 - block).sum().to(hit.dtype)
            tp.append(hit)
            fp.append(miss)
        return torch.stack(tp).double(), torch.stack(fp).double()


class TagMetrics:
    def __init__(self, dtype=torch.bfloat16):
        self.dtype = dtype
        self.pred, self.truth = [], []

    def update(self, logits, truth):
        self.pred.append(logits.to(self.dtype))
        self.truth.append(truth)

    def auc(self):
        tp, fp = RankedList(torch.cat(self.pred), torch.cat(self.truth)).counts()
        area = torch.trapezoid(tp, fp)
        return (area / (self.positives() * self.negatives())).item()

    def positives(self):
        return sum(int(t.sum()) for t in self.truth)

    def negatives(self):
        return sum(int((1 - t).sum()) for t in self.truth)


def clips(batches, gen):
    for _ in range(batches):
        truth = (torch.rand(500, generator=gen) < 0.3).long()
        score = torch.randn(500, generator=gen) * 0.5 + truth
        yield (score.clamp(-1.9, 1.9) * 64).round() / 64, truth


gen = torch.Generator().manual_seed(0)
metrics = TagMetrics()
for logits, truth in clips(20, gen):
    metrics.update(logits, truth)
print(f"{metrics.positives()} positives, area under the curve {metrics.auc():.3f}")
