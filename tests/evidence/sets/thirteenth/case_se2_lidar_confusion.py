"""
title: the confusion matrix of a lidar benchmark is made a float and its large entry stops growing
expect: silent:lost-update|precision-loss
thread: https://github.com/PRBonn/lidar-bonnetal/issues/74
measured: accuracy 62.1%, IoU of road, wall, car: 0.949, 0.669, 0.928
widened: accuracy 97.0%, IoU of road, wall, car: 0.969, 0.669, 0.928

Expectation, written first: ones are added to float32 entries; at 2**24 the entry of the road stops and the accuracy over
all points falls with every further scan. The innocent suspect is the remission channel in float16, which the
segmenter reads: its rounding is far below the threshold's margin.
"""
import torch


class IoUEval:
    def __init__(self, classes):
        self.classes = classes
        self.reset()

    def reset(self):
        self.conf_matrix = torch.zeros((self.classes, self.classes), dtype=torch.float32)  # BORN
        self.ones = None
        self.seen = 0

    def add_batch(self, predicted, labels):
        if self.ones is None or len(self.ones) != len(labels):
            self.ones = torch.ones(len(labels), dtype=self.conf_matrix.dtype)
        self.conf_matrix = self.conf_matrix.index_put_((predicted, labels), self.ones, accumulate=True)
        self.seen += len(labels)

    def iou(self):
        hit = self.conf_matrix.diag()
        return hit / (self.conf_matrix.sum(0) + self.conf_matrix.sum(1) - hit)

    def accuracy(self):
        return self.conf_matrix.diag().double().sum().item() / self.seen


class Scans:
    """flat country: nine points of ten are road"""

    def __init__(self, points, gen):
        self.points, self.gen = points, gen

    def __iter__(self):
        while True:
            draw = torch.rand(self.points, generator=self.gen)
            labels = (draw > 0.9).long() + (draw > 0.96).long()
            remission = 0.2 + 0.3 * labels + 0.05 * torch.rand(self.points, generator=self.gen)
            yield remission.to(torch.float16), labels


class ThresholdSegmenter:
    def __call__(self, remission, gen):
        r = remission.float()
        predicted = (r > 0.35).long() + (r > 0.65).long()
        confused = torch.rand(len(r), generator=gen) < 0.03
        return torch.where(confused, (predicted + 1) % 3, predicted)


def main():
    gen = torch.Generator().manual_seed(15)
    evaluator, segmenter = IoUEval(3), ThresholdSegmenter()
    for i, (remission, labels) in enumerate(Scans(500_000, gen)):
        if i == 64:
            break
        evaluator.add_batch(segmenter(remission, gen), labels)
    iou = ", ".join(f"{x:.3f}" for x in evaluator.iou().tolist())
    print(f"accuracy {100 * evaluator.accuracy():.1f}%, IoU of road, wall, car: {iou}")


main()
