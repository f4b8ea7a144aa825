"""
title: label volumes are stored as uint8 and counted through int64 before the Dice score is formed
expect: clean
thread: https://github.com/mattmacy/vnet.pytorch/issues/13
measured: dice [0.749, 0.823, 0.906, 0.934, 0.932, 0.902, 0.952] voxels 16000
float64: dice [0.749, 0.823, 0.906, 0.934, 0.932, 0.902, 0.952] voxels 16000 (labels in int64, intensities and scores in float64)

Expectation, written first: there are seven tissues and uint8 holds them; the pair index and the counts are int64, the
intensities are float16 on disk but of ten bits only. The Dice scores agree to the last printed digit.
"""
from dataclasses import dataclass

import torch
import torch.nn.functional as F

STORE, IMAGE, REAL = torch.uint8, torch.float16, torch.float32
TISSUES = 7


@dataclass
class Case:
    image: torch.Tensor
    label: torch.Tensor


def phantom(size, seed):
    gen = torch.Generator().manual_seed(seed)
    at = torch.stack(torch.meshgrid(*[torch.linspace(-1, 1, size, dtype=torch.float64)] * 3, indexing="ij"))
    shape = torch.rand(3, generator=gen, dtype=torch.float64) * 0.4 + 0.8
    radius = ((at * shape[:, None, None, None]) ** 2).sum(0).sqrt()
    label = (radius * 5).floor().clamp(max=TISSUES - 1)
    noise = torch.randn(label.shape, generator=gen, dtype=torch.float64)
    intensity = (label * 120 + 35 * noise + 100).round().clamp(0, 1023)
    return Case(intensity.to(IMAGE), label.to(STORE))


class Smooth:
    def __init__(self, width=3):
        self.width = width

    def __call__(self, image):
        x = image.to(REAL)[None, None]
        return F.avg_pool3d(x, self.width, stride=1, padding=self.width // 2, count_include_pad=False)[0, 0]


class NearestTissue:
    def fit(self, cases, smooth):
        sums, counts = torch.zeros(TISSUES, dtype=REAL), torch.zeros(TISSUES, dtype=torch.int64)
        for case in cases:
            index = case.label.flatten().long()
            sums.index_add_(0, index, smooth(case.image).flatten() / 1024)
            counts += torch.bincount(index, minlength=TISSUES)
        self.means = sums / counts
        return self

    def predict(self, image):
        return (image[..., None] / 1024 - self.means).abs().argmin(-1).to(STORE)


class Confusion:
    def __init__(self):
        self.table = torch.zeros(TISSUES, TISSUES, dtype=torch.int64)

    def add(self, predicted, label):
        pairs = label.long() * TISSUES + predicted.long()
        self.table += torch.bincount(pairs.flatten(), minlength=TISSUES**2).view(TISSUES, TISSUES)

    def dice(self):
        table = self.table.to(REAL)
        return 2 * table.diagonal() / (table.sum(0) + table.sum(1)).clamp(min=1)


if __name__ == "__main__":
    smooth = Smooth()
    model = NearestTissue().fit([phantom(20, seed) for seed in range(4)], smooth)
    confusion = Confusion()
    for seed in (10, 11):
        case = phantom(20, seed)
        confusion.add(model.predict(smooth(case.image)), case.label)
    print("dice", [round(d, 3) for d in confusion.dice().tolist()], "voxels", int(confusion.table.sum()))
