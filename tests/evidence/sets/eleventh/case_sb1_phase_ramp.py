"""
title: a sub-pixel shift multiplies a real spectrum in place by a complex phase ramp
expect: collision
thread: https://github.com/bdusell/semiring-einsum/issues/32
fix_at: 37, 40, 41

Expectation, written first: the half spectrum was kept as a pair of real planes and its magnitude is what is shifted;
the ramp is complex, and an in-place product cannot be stored in a real tensor.
"""
from dataclasses import dataclass

import torch


@dataclass
class ShiftConfig:
    size: int = 32
    window: str = "hann"
    shift: tuple = (0.25, -0.5)


class FourierShifter:
    def __init__(self, cfg):
        self.cfg = cfg
        n = cfg.size
        self.fy = torch.fft.fftfreq(n)[:, None]
        self.fx = torch.fft.rfftfreq(n)[None, :]
        w = torch.hann_window(n) if cfg.window == "hann" else torch.ones(n)
        self.window = w[:, None] * w[None, :]

    def ramp(self, dy, dx):
        angle = -2 * torch.pi * (self.fy * dy + self.fx * dx)
        return torch.polar(torch.ones_like(angle), angle)

    def spectrum(self, image):
        planes = torch.view_as_real(torch.fft.rfft2(image * self.window))
        return planes.square().sum(-1).sqrt()  # BORN

    def __call__(self, image):
        spec = self.spectrum(image)
        spec.mul_(self.ramp(*self.cfg.shift))  # COLLIDES
        return torch.fft.irfft2(spec, s=image.shape[-2:])


class Registrar:
    def __init__(self, shifter):
        self.shifter = shifter

    def loss(self, moving, fixed):
        return (self.shifter(moving) - fixed * self.shifter.window).pow(2).mean()


def blobs(size, gen):
    y, x = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    out = torch.zeros(size, size)
    for _ in range(5):
        cy, cx = torch.rand(2, generator=gen) * size
        out += torch.exp(-((y - cy) ** 2 + (x - cx) ** 2) / 8)
    return out


def main():
    gen = torch.Generator().manual_seed(2)
    cfg = ShiftConfig()
    image = blobs(cfg.size, gen)
    registrar = Registrar(FourierShifter(cfg))
    print(f"{registrar.loss(image, image).item():.4f}")


main()
