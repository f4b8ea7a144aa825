"""
title: confusion matrix of a street-scene segmenter with nineteen classes
expect: silent:overflow|precision-loss|downcast
thread: https://github.com/Lightning-AI/torchmetrics/issues/1510
measured: mean IoU 0.494, pixel accuracy 0.745
widened: mean IoU 1.000, pixel accuracy 1.000
fix_at: 46

Expectation, written first: the label maps are uint8 and are multiplied by the number
of classes before they are widened, so classes above 13 land in wrong cells. BORN is the uint8
of the label map; int64 there mends it. The half logits do not change the argmax.
"""
import torch
from torch import nn

CLASSES = 19


class Streets:
    def __init__(self, count, size=24):
        self.count, self.size = count, size

    def __iter__(self):
        for i in range(self.count):
            gen = torch.Generator().manual_seed(i)
            coarse = torch.randint(0, CLASSES, (6, 6), generator=gen)
            label = coarse.repeat_interleave(4, 0).repeat_interleave(4, 1)
            yield label.to(torch.uint8), gen  # BORN


class OracleNet(nn.Module):
    """Knows the classes apart from a few percent of the pixels."""

    def forward(self, label, gen):
        onehot = nn.functional.one_hot(label.long(), CLASSES).permute(2, 0, 1).float()
        logits = 8 * onehot + torch.randn(onehot.shape, generator=gen)
        return logits.half()


class Confusion:
    def __init__(self, classes):
        self.classes = classes
        self.matrix = torch.zeros(classes, classes, dtype=torch.int64)

    def update(self, pred, target):
        cell = (target * self.classes + pred).long().flatten()
        counts = torch.bincount(cell, minlength=self.classes ** 2)
        self.matrix += counts.view(self.classes, self.classes)

    def mean_iou(self):
        hit = self.matrix.diagonal().double()
        union = self.matrix.sum(0) + self.matrix.sum(1) - self.matrix.diagonal()
        return (hit / union.clamp(min=1)).mean().item(), hit.sum().item() / self.matrix.sum().item()


def main():
    net, confusion = OracleNet(), Confusion(CLASSES)
    for label, gen in Streets(12):
        confusion.update(net(label, gen).argmax(0), label)
    iou, accuracy = confusion.mean_iou()
    print("mean IoU %.3f, pixel accuracy %.3f" % (iou, accuracy))


if __name__ == "__main__":
    main()
