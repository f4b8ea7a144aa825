"""
title: the correlation of small half precision signals squares them in half
expect: silent:underflow|precision-loss
thread: https://github.com/Lightning-AI/torchmetrics/issues/1922
measured: mean correlation and pixels above 0.5 by amplitude {1.0: (0.693, 26), 5e-05: (0.0, 1)}
widened: mean correlation and pixels above 0.5 by amplitude {1.0: (0.693, 26), 5e-05: (0.739, 27)}

Expectation, written first: fluorescence changes below a ten-thousandth have squares below the smallest half, the
products vanish and the correlation map is empty, while strong signals come out right.
"""
import torch


def pearson(a, b):
    a = a - a.float().mean(-1, keepdim=True).to(a.dtype)
    b = b - b.float().mean(-1, keepdim=True).to(b.dtype)
    cov, va, vb = a * b, a * a, b * b  # BORN
    scale = (va.float().sum(-1) * vb.float().sum(-1)).sqrt()
    return torch.nan_to_num(cov.float().sum(-1) / scale)


class ImageStack:
    def __init__(self, frames):
        self.frames = frames.to(torch.float16)

    def baseline_corrected(self):
        base = self.frames.float().median(-1, keepdim=True).values
        return (self.frames.float() - base).to(self.frames.dtype)


class SeedMap:
    def __init__(self, seed):
        self.seed = seed

    def __call__(self, stack):
        signal = stack.baseline_corrected()
        return pearson(signal, signal[self.seed].expand_as(signal))


def movie(pixels, frames, amplitude, gen):
    drive = torch.randn(frames, generator=gen)
    share = torch.linspace(0, 1, pixels)[:, None]
    noise = torch.randn(pixels, frames, generator=gen)
    return amplitude * (share * drive + 0.5 * noise)


def main():
    gen = torch.Generator().manual_seed(0)
    out = {}
    for amplitude in (1.0, 5e-5):
        stack = ImageStack(movie(40, 300, amplitude, gen))
        r = SeedMap(seed=39)(stack)
        out[amplitude] = (round(r[20:39].mean().item(), 3), int((r > 0.5).sum()))
    print("mean correlation and pixels above 0.5 by amplitude", out)


main()
