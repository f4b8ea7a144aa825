"""
title: predicted instance masks are matched to the true ones by an IoU made from uint8 masks
expect: silent:overflow|integer-overflow|wraparound
thread: https://github.com/ultralytics/ultralytics/issues/15782
measured: recall 0.458, mean IoU 0.508
widened: recall 1.000, mean IoU 0.849

Expectation, written first: the masks are uint8, their matrix product keeps that type, and an intersection of more
than 255 pixels wraps; large objects lose their match. The areas are summed as int64 and are right. The bfloat16
scores only order the predictions, and that order is the same in any type.
"""
import torch


def discs(n, size, gen):
    yy, xx = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    centre = torch.randint(16, size - 16, (n, 2), generator=gen)
    radius = torch.randint(6, 14, (n,), generator=gen)
    far = (yy - centre[:, :1, None]) ** 2 + (xx - centre[:, 1:, None]) ** 2
    return (far <= radius[:, None, None] ** 2).to(torch.uint8)  # BORN


def shift(masks, gen):
    out = []
    for mask in masks:
        dy, dx = torch.randint(-1, 2, (2,), generator=gen).tolist()
        out.append(mask.roll((dy, dx), (0, 1)))
    return torch.stack(out)


def mask_iou(masks, others):
    inter = masks.flatten(1) @ others.flatten(1).T  # BORN
    area = masks.flatten(1).sum(1)[:, None] + others.flatten(1).sum(1)[None]
    return inter / (area - inter + 1e-7)


class Evaluator:
    def __init__(self, threshold=0.5):
        self.threshold = threshold
        self.hit = self.total = 0
        self.ious = []

    def add(self, scores, predicted, true):
        order = scores.to(torch.bfloat16).argsort(descending=True)
        iou = mask_iou(predicted[order], true)
        best, which = iou.max(1)
        taken = set()
        for value, target in zip(best.tolist(), which.tolist()):
            self.ious.append(value)
            if value >= self.threshold and target not in taken:
                taken.add(target)
                self.hit += 1
        self.total += len(true)


def main():
    gen = torch.Generator().manual_seed(1)
    evaluator = Evaluator()
    for _ in range(6):
        true = discs(8, 96, gen)
        scores = torch.linspace(0.95, 0.1, 8)[torch.randperm(8, generator=gen)]
        evaluator.add(scores, shift(true, gen), true)
    mean = sum(evaluator.ious) / len(evaluator.ious)
    print(f"recall {evaluator.hit / evaluator.total:.3f}, mean IoU {mean:.3f}")


main()
