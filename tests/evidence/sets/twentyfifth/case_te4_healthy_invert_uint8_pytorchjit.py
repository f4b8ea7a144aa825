"""
title: inverting uint8 pictures with a float bound
expect: clean
thread: https://github.com/pytorch/pytorch/issues/49336
measured: range 0..187 normalised mean -0.499
suspect: 17 exact (255.0 is a Python float: the difference is float32 and is not taken in uint8)

Expectation, written first: bound - x looks like an unsigned negation, but in eager mode the scalar is a float and the
uint8 picture is promoted to float32 first, so nothing wraps. Inverting twice gives the picture back; solarised pixels
stay in range.
"""
import torch


def invert(x):
    bound = 255.0
    return bound - x


def solarize(x, threshold):
    inverted = invert(x)
    return torch.where(x >= threshold, inverted, x.to(inverted.dtype))


def posterize(x, bits):
    mask = 256 - 2 ** (8 - bits)
    return x & mask


class RandomAugment:
    def __init__(self, generator):
        self.generator = generator

    def __call__(self, img):
        threshold = int(torch.randint(64, 192, (1,), generator=self.generator))
        return solarize(posterize(img, 6), threshold), threshold


class Normalize:
    def __init__(self, mean, std):
        self.mean = torch.tensor(mean)[:, None, None]
        self.std = torch.tensor(std)[:, None, None]

    def __call__(self, img):
        return (img / 255 - self.mean) / self.std


def main():
    generator = torch.Generator().manual_seed(49336)
    augment = RandomAugment(generator)
    normalize = Normalize([0.4, 0.4, 0.4], [0.25, 0.25, 0.25])
    lows, highs, means = [], [], []
    for _ in range(8):
        img = torch.randint(0, 256, (3, 32, 32), generator=generator, dtype=torch.uint8)
        out, threshold = augment(img)
        back = invert(invert(img).to(torch.uint8))
        assert torch.equal(back.to(torch.uint8), img)
        lows.append(out.min().item())
        highs.append(out.max().item())
        means.append(normalize(out).mean().item())
    print(f"range {min(lows):.0f}..{max(highs):.0f} normalised mean {sum(means) / len(means):.3f}")


main()
