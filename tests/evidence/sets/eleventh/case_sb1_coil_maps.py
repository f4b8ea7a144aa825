"""
title: real and imaginary parts of coil maps come from different files and are joined to complex numbers
expect: collision
thread: https://github.com/MRsources/MRzero-Core/issues/76
fix_at: 23, 35, 36, 38, 42, 45, 46

Expectation, written first: the magnitude file was written as float32, the phase file by numpy in float64; the real
part is cast with the phantom, the imaginary part is not, and complex() wants one type.
"""
import io

import numpy as np
import torch


def write_npz(coils, n, seed=0):
    rng = np.random.default_rng(seed)
    y, x = np.meshgrid(np.linspace(-1, 1, n), np.linspace(-1, 1, n), indexing="ij")
    centre = rng.uniform(-1.2, 1.2, (coils, 2))
    mag = np.stack([np.exp(-((x - a) ** 2 + (y - b) ** 2)) for a, b in centre])
    phase = np.stack([a * x + b * y for a, b in centre])
    stream = io.BytesIO()
    np.savez(stream, real=(mag * np.cos(phase)).astype(np.float32), imag=mag * np.sin(phase))  # BORN
    stream.seek(0)
    return stream


class VoxelGridPhantom:
    def __init__(self, density, coil_sens):
        self.density, self.coil_sens = density, coil_sens

    @classmethod
    def load(cls, stream, size):
        file = np.load(stream)
        real = torch.as_tensor(file["real"])
        imag = torch.as_tensor(file["imag"])  # BORN
        density = (real.square().sum(0) + 0.2).sqrt()
        return cls(density, (real, imag)).interpolate(size)

    @staticmethod
    def _resize(x, size):
        return torch.nn.functional.interpolate(x[None], size=(size, size), mode="bilinear", align_corners=True)[0]

    def interpolate(self, size):
        real, imag = (self._resize(part, size) for part in self.coil_sens)
        sens = torch.complex(real, imag)  # COLLIDES
        return VoxelGridPhantom(self._resize(self.density[None], size)[0], sens)


class Scanner:
    def __init__(self, phantom):
        self.phantom = phantom

    def kspace(self):
        image = self.phantom.density * self.phantom.coil_sens
        return torch.fft.fftshift(torch.fft.fft2(image), dim=(-2, -1))

    def combine(self, kspace):
        image = torch.fft.ifft2(torch.fft.ifftshift(kspace, dim=(-2, -1)))
        sens = self.phantom.coil_sens
        return (sens.conj() * image).sum(0) / sens.abs().square().sum(0)


if __name__ == "__main__":
    phantom = VoxelGridPhantom.load(write_npz(coils=4, n=24), size=32)
    scanner = Scanner(phantom)
    back = scanner.combine(scanner.kspace())
    print(f"{(back.abs() - phantom.density).abs().max().item():.2e}")
