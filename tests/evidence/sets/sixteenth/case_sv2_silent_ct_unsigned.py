"""
title: a signed CT volume is loaded into the unsigned intensities of a feature extractor
expect: silent:overflow|integer-overflow|wraparound|downcast
thread: https://github.com/PolusAI/nyxus/pull/373
measured: lung: mean 64598, range 65533, entropy 0.04 bit
widened: lung: mean -686, range 1270, entropy 4.32 bit

Expectation, written first: air and lung have negative Hounsfield units and come out near 65000; the mean of the lung
and the grey bins are made of them. The mask of the organs is uint8, its labels are small.
"""
import torch


class Volume:
    def __init__(self, hu, labels):
        self.hu = hu.to(torch.int16)
        self.labels = labels.to(torch.uint8)


class Loader:
    def load_tile(self, volume, z):
        pixels = volume.hu[z].to(torch.uint16)  # BORN
        return pixels.to(torch.int32), volume.labels[z]

    def roi(self, volume, label):
        found = []
        for z in range(len(volume.hu)):
            pixels, labels = self.load_tile(volume, z)
            found.append(pixels[labels == label])
        return torch.cat(found)


class FirstOrder:
    def __init__(self, bins=32):
        self.bins = bins

    def __call__(self, pixels):
        x = pixels.double()
        counts = torch.histc(x.float(), bins=self.bins)
        p = counts[counts > 0] / counts.sum()
        return {"mean": x.mean(), "range": x.max() - x.min(), "entropy": -(p * p.log2()).sum()}


def phantom(gen, size=64, depth=12):
    y, x = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    labels = torch.zeros(depth, size, size, dtype=torch.int64)
    body = ((x - 32) / 28) ** 2 + ((y - 32) / 24) ** 2 < 1
    labels[:, body] = 1
    for centre in (20, 44):
        labels[:, ((x - centre) / 8) ** 2 + ((y - 30) / 12) ** 2 < 1] = 2
    hu = torch.tensor([-1000.0, 40.0, -700.0])[labels]
    noise = torch.tensor([10.0, 20.0, 260.0])[labels]
    return Volume((hu + noise * torch.randn(hu.shape, generator=gen)).round().clamp(-1024, 3071), labels)


def main():
    volume = phantom(torch.Generator().manual_seed(14))
    loader, features = Loader(), FirstOrder()
    lung = features(loader.roi(volume, 2))
    print(f"lung: mean {lung['mean']:.0f}, range {lung['range']:.0f}, entropy {lung['entropy']:.2f} bit")


main()
