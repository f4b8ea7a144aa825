"""
title: saturation jitter writes its result to uint8 without clipping
expect: silent:overflow|wraparound|integer-overflow|downcast
thread: https://github.com/tensorpack/tensorpack/issues/614
measured: pixels that changed to another colour: 36.7%, largest mean change 150.7
widened: pixels that changed to another colour: 0.0%, largest mean change 32.5

Expectation, written first: pixels beyond 255 or below 0 wrap to the other end; vivid pictures
get spots of wrong colours, and the mean of the worst channel moves far.
"""
import torch


class Saturation:
    def __init__(self, strength, gen):
        self.strength, self.gen = strength, gen

    def __call__(self, image):
        v = 1 + self.strength * (2 * torch.rand((), generator=self.gen) - 1)
        grey = (image.float() * torch.tensor([0.299, 0.587, 0.114]).view(3, 1, 1)).sum(0, keepdim=True)
        mixed = v * image.float() + (1 - v) * grey
        return mixed.to(torch.uint8)  # BORN


def vivid(gen, size=32):
    base = torch.randint(0, 2, (3, 4, 4), generator=gen).float().repeat_interleave(8, 1).repeat_interleave(8, 2)
    return (base * 225 + 15 * torch.rand(3, size, size, generator=gen)).to(torch.uint8)


def main(n=64):
    gen = torch.Generator().manual_seed(0)
    jitter = Saturation(0.4, gen)
    far, total, worst = 0, 0, 0.0
    for _ in range(n):
        image = vivid(gen)
        out = jitter(image).float()
        gap = (out - image.float()).abs()
        far += (gap > 128).any(0).sum().item()
        total += gap.shape[1] * gap.shape[2]
        worst = max(worst, gap.mean().item())
    print(f"pixels that changed to another colour: {100 * far / total:.1f}%, largest mean change {worst:.1f}")


main()
