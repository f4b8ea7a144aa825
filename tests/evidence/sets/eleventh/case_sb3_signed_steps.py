"""
title: differences of bytes are taken in int16 and their squares in int32
expect: clean
thread: https://github.com/dwave-examples/image-segmentation/pull/11
measured: left part 100.0%, right part 0.0%, same as float64 True

Expectation, written first: a difference of bytes fits int16 and its square, at most 65025, fits int32; the weights
are symmetric and agree with a float64 run.
"""
import torch


class PixelWeights:
    def __init__(self, image, scale=30.0):
        self.signed = image.to(torch.int16)
        self.scale = scale

    def square(self, a, b):
        return ((a - b).to(torch.int32) ** 2).sum(-1)

    def horizontal(self):
        d = self.square(self.signed[:, :-1], self.signed[:, 1:])
        return torch.exp(-d.float() / self.scale ** 2)

    def vertical(self):
        d = self.square(self.signed[:-1], self.signed[1:])
        return torch.exp(-d.float() / self.scale ** 2)


class SpectralCut:
    def __init__(self, weights, shape, dtype=torch.float64):
        h, w = shape
        index = torch.arange(h * w).view(h, w)
        lap = torch.zeros(h * w, h * w, dtype=dtype)
        for a, b, v in ((index[:, :-1], index[:, 1:], weights.horizontal()), (index[:-1], index[1:], weights.vertical())):
            a, b, v = a.reshape(-1), b.reshape(-1), v.reshape(-1).to(dtype)
            lap[a, b] -= v
            lap[b, a] -= v
        lap -= torch.diag(lap.sum(1))
        self.vector = torch.linalg.eigh(lap).eigenvectors[:, 1].view(h, w)

    def mask(self):
        m = self.vector > 0
        return m if m[0, 0] else ~m


def picture(size=16, seed=0):
    gen = torch.Generator().manual_seed(seed)
    image = torch.full((size, size, 3), 40.0)
    image[:, size // 2:] = torch.tensor([210.0, 90.0, 30.0])
    return (image + 5 * torch.randn(image.shape, generator=gen)).round().clamp(0, 255).to(torch.uint8)


class WideWeights(PixelWeights):
    def __init__(self, image, scale=30.0):
        self.signed, self.scale = image.double(), scale

    def square(self, a, b):
        return ((a - b) ** 2).sum(-1)


if __name__ == "__main__":
    image = picture()
    cut = SpectralCut(PixelWeights(image), image.shape[:2]).mask()
    wide = SpectralCut(WideWeights(image), image.shape[:2]).mask()
    print(f"left part {100 * cut[:, :8].float().mean().item():.1f}%, right part {100 * cut[:, 8:].float().mean().item():.1f}%, same as float64 {torch.equal(cut, wide)}")
