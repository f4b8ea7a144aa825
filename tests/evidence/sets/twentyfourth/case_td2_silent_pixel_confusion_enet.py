"""
title: IoU of the road class exceeds one on a large evaluation set
expect: silent:integer-overflow|overflow|wraparound
thread: https://github.com/davidtvs/PyTorch-ENet/pull/46
measured: mIoU 0.776 road 1.190
widened: mIoU 0.752 road 0.904; innocent: mIoU 0.776 road 1.190
suspect: 64 range (12 classes, 12 * 11 + 11 = 143 fits in a byte)

Expectation, written first: the confusion matrix is kept in int32; the most frequent class gathers more than 2**31
pixels and its count wraps, so its IoU and the mean are wrong. Labels in uint8 are harmless here,
since the joint index stays at most 143.
"""
import torch


class ConfusionMatrix:
    def __init__(self, num_classes, normalized=False):
        self.conf = torch.zeros((num_classes, num_classes), dtype=torch.int32)  # BORN
        self.normalized = normalized
        self.num_classes = num_classes

    def reset(self):
        self.conf.fill_(0)

    def add(self, predicted, target, area):
        x = predicted + self.num_classes * target
        counts = torch.bincount(x.long(), weights=area.double(), minlength=self.num_classes ** 2)
        self.conf += counts.reshape(self.num_classes, self.num_classes).round().long()  # BORN

    def value(self):
        if self.normalized:
            return self.conf / self.conf.sum(1, keepdim=True).clamp(min=1)
        return self.conf


class IoU:
    def __init__(self, num_classes, ignore_index=None):
        self.conf_metric = ConfusionMatrix(num_classes)
        self.ignore_index = ignore_index

    def add(self, predicted, target, area):
        self.conf_metric.add(predicted, target, area)

    def value(self):
        conf_matrix = self.conf_metric.value().double()
        if self.ignore_index is not None:
            conf_matrix[:, self.ignore_index] = 0
            conf_matrix[self.ignore_index, :] = 0
        true_positive = conf_matrix.diag()
        false_positive = conf_matrix.sum(0) - true_positive
        false_negative = conf_matrix.sum(1) - true_positive
        iou = true_positive / (true_positive + false_positive + false_negative)
        return iou, torch.nanmean(iou)


def superpixel_batches(num_batches, per_batch, num_classes, generator):
    prior = torch.tensor([0.62] + [0.38 / (num_classes - 1)] * (num_classes - 1))
    for _ in range(num_batches):
        target = torch.multinomial(prior, per_batch, replacement=True, generator=generator)
        wrong = torch.rand(per_batch, generator=generator) < 0.1
        noise = torch.randint(0, num_classes, (per_batch,), generator=generator)
        predicted = torch.where(wrong, noise, target)
        area = torch.randint(20000, 36000, (per_batch,), generator=generator)
        yield predicted.to(torch.uint8), target.to(torch.uint8), area


def main():
    generator = torch.Generator().manual_seed(46)
    metric = IoU(num_classes=12)
    for predicted, target, area in superpixel_batches(40, 4096, 12, generator):
        metric.add(predicted, target, area)
    iou, miou = metric.value()
    print(f"mIoU {miou.item():.3f} road {iou[0].item():.3f}")


main()
