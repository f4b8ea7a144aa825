"""
title: a confusion matrix is counted in float16 and ends at 2048; the guesses of twenty classes may be bytes
expect: silent:lost-update|precision-loss|downcast
"""
import torch

torch.manual_seed(910)


class Confusion:
    def __init__(self, classes):
        self.matrix = torch.zeros(classes, classes, dtype=torch.float16)  # BORN

    def add(self, guess, label):
        guess = guess.to(torch.uint8).long()
        for row in range(len(guess)):
            self.matrix[label[row], guess[row]] += 1

    def mean_iou(self):
        m = self.matrix.double()
        hit = m.diagonal()
        return (hit / (m.sum(0) + m.sum(1) - hit).clamp(min=1)).mean().item()


def frame(pixels=400, classes=20):
    """Most of the picture is road; it is sometimes taken for something else."""
    label = torch.where(torch.rand(pixels) < 0.6, 0, torch.randint(0, classes, (pixels,)))
    return torch.where(torch.rand(pixels) < 0.8, label, torch.randint(0, classes, (pixels,))), label


confusion, exact = Confusion(20), torch.zeros(20, 20, dtype=torch.float64)
for image in range(30):
    guess, label = frame()
    confusion.add(guess, label)
    exact.index_put_((label, guess), torch.ones(len(label), dtype=torch.float64), accumulate=True)
hit = exact.diagonal()
print("share of road", round((confusion.matrix[0].double().sum() / confusion.matrix.double().sum()).item(), 3), "exact",
      round((exact[0].sum() / exact.sum()).item(), 3),
      "mean iou", round(confusion.mean_iou(), 4), "exact", round((hit / (exact.sum(0) + exact.sum(1) - hit)).mean().item(), 4))
