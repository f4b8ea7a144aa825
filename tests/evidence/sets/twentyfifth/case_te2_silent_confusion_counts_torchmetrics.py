"""
title: the confusion matrix stops counting background pixels
expect: silent:precision-loss|lost-update|downcast
thread: https://github.com/Lightning-AI/torchmetrics/issues/187
measured: pixels seen 16783216 missing from matrix 1500 iou land 0.83
widened: pixels seen 16783216 missing from matrix 0 iou land 0.83; innocent: pixels seen 16783216 missing from matrix 1500 iou land 0.83
suspect: 42 exact (class numbers below 256)

Expectation, written first: the counts live in a float32 matrix. Beyond 2**24 a one is no longer added, so the single
background pixels of the late, small tiles are all lost. Remedy: int64 (or float64) counts. Targets as uint8 are exact.
"""
import torch


class ConfusionMatrix:
    def __init__(self, num_classes):
        self.num_classes = num_classes
        self.confmat = torch.zeros(num_classes, num_classes)  # BORN
        self.seen = 0

    def update(self, preds, target):
        unique_mapping = (target * self.num_classes + preds).flatten()
        bins = torch.bincount(unique_mapping, minlength=self.num_classes ** 2)
        self.confmat += bins.reshape(self.num_classes, self.num_classes)  # BORN
        self.seen += target.numel()

    def compute(self):
        return self.confmat


def iou(confmat):
    inter = confmat.diag()
    return inter / (confmat.sum(0) + confmat.sum(1) - inter)


class TileDataset:
    def __init__(self, generator):
        self.generator = generator

    def ocean(self, n_tiles):
        for _ in range(n_tiles):
            yield torch.zeros(1024, 1024, dtype=torch.uint8)

    def coast(self, n_tiles):
        for _ in range(n_tiles):
            tile = torch.randint(1, 3, (2, 2), generator=self.generator).to(torch.int64)
            tile[0, 0] = 0
            yield tile


def model(tile, generator):
    if tile.numel() > 100:
        return tile.long()
    flip = torch.rand(tile.shape, generator=generator) < 0.1
    return torch.where(flip & (tile > 0), 3 - tile, tile)


def main():
    generator = torch.Generator().manual_seed(187)
    metric = ConfusionMatrix(num_classes=3)
    data = TileDataset(generator)
    for tile in data.ocean(16):
        metric.update(model(tile, generator), tile.long())
    for tile in data.coast(1500):
        metric.update(model(tile, generator), tile.long())
    confmat = metric.compute()
    missing = metric.seen - int(confmat.double().sum())
    print(f"pixels seen {metric.seen} missing from matrix {missing} iou land {iou(confmat)[1]:.2f}")


main()
