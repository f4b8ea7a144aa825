"""
title: PSNR of generated right views is taken between uint8 pictures
expect: silent:overflow|wraparound|integer-overflow
thread: https://github.com/song2yu/Mono2Stereo/issues/13
measured: PSNR noisy model 34.07 dB, displaced model 28.19 dB
widened: PSNR noisy model 33.96 dB, displaced model 10.86 dB
fix_at: 24, 25

Expectation, written first: the difference of uint8 wraps and its square wraps again, so the
error looks far smaller than it is; the better of two models loses.
"""
import torch


def to_uint8(image):
    return (image.clamp(0, 1) * 255).round().to(torch.uint8)  # BORN


class StereoEval:
    def __init__(self):
        self.mse, self.count = 0.0, 0

    def update(self, pred, target):
        diff = pred - target
        self.mse += (diff ** 2).float().mean().item()
        self.count += 1

    def psnr(self):
        return (10 * torch.log10(torch.tensor(255.0 ** 2 / (self.mse / self.count)))).item()


def scene(gen, size=64):
    yy, xx = torch.meshgrid(torch.linspace(0, 6, size), torch.linspace(0, 6, size), indexing="ij")
    phase = torch.rand(3, 1, 1, generator=gen) * 6
    return 0.5 + 0.4 * torch.sin(yy + phase) * torch.cos(xx * 1.7 + phase)


def main():
    gen = torch.Generator().manual_seed(0)
    sharp, shifted = StereoEval(), StereoEval()
    for _ in range(10):
        right = scene(gen)
        good = right + 0.02 * torch.randn(right.shape, generator=gen)
        bad = right.roll(9, -1)
        sharp.update(to_uint8(good), to_uint8(right))
        shifted.update(to_uint8(bad), to_uint8(right))
    print(f"PSNR noisy model {sharp.psnr():.2f} dB, displaced model {shifted.psnr():.2f} dB")


main()
