"""
title: the per-channel standard deviation of the image folder is far too small
expect: silent:integer-overflow|overflow
thread: https://github.com/pytorch/pytorch/issues/110854
measured: mean [119.4, 99.7, 79.9] std [0.0, 0.0, 0.0]
widened: mean [119.4, 99.7, 79.9] std [39.9, 39.8, 39.1]; innocent: mean [119.4, 99.7, 79.9] std [0.0, 0.0, 0.0]
suspect: 36 exact (the count is 4096)

Expectation, written first: torch.square keeps the uint8 of the decoded pictures, so every square is taken modulo 256
before the int64 sum; the second moment is wrong and E[x^2]-E[x]^2 with it (clamped at 0). The mean is right. Remedy:
widen the picture before squaring. The pixel count in int16 is exact.
"""
import torch


class FakeImageFolder:
    def __init__(self, n, size, generator):
        self.n, self.size, self.generator = n, size, generator

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        base = torch.tensor([120.0, 100.0, 80.0])[:, None, None]
        img = base + 40 * torch.randn(3, self.size, self.size, generator=self.generator)
        return img.clamp(0, 255).to(torch.uint8), i % 4


class Stats:
    def __init__(self):
        self.total = torch.zeros(3, dtype=torch.float64)
        self.total_sq = torch.zeros(3, dtype=torch.float64)
        self.count = 0

    def update(self, img):
        pixels = torch.tensor(img[0].numel(), dtype=torch.int16)
        self.total += img.sum(dim=(1, 2))
        self.total_sq += torch.square(img).sum(dim=(1, 2))  # BORN
        self.count += int(pixels)

    def finish(self):
        mean = self.total / self.count
        var = (self.total_sq / self.count - mean ** 2).clamp(min=0)
        return mean, var.sqrt()


def compute_mean_std(dataset):
    stats = Stats()
    for i in range(len(dataset)):
        img, _ = dataset[i]
        stats.update(img)
    return stats.finish()


def main():
    generator = torch.Generator().manual_seed(110854)
    mean, std = compute_mean_std(FakeImageFolder(32, 64, generator))
    print("mean", [round(v, 1) for v in mean.tolist()], "std", [round(v, 1) for v in std.tolist()])


main()
