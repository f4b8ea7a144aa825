"""
title: the spectrum of a spherical signal meets kernel coefficients that were never made complex
expect: collision
thread: https://github.com/jonkhler/s2cnn/issues/54
fix_at: 44, 48, 55, 58

Expectation, written first: the transform along the longitudes gives complex64; the kernel's coefficients are a
plain real parameter, and the einsum of both is a batched product which takes one scalar type.
"""
import math

import torch
from torch import nn


def legendre(bands, theta):
    """normalised P_l^0 at the latitudes"""
    x = torch.cos(theta)
    rows = [torch.ones_like(x), x]
    for l in range(1, bands - 1):
        rows.append(((2 * l + 1) * x * rows[l] - l * rows[l - 1]) / (l + 1))
    return torch.stack([r * math.sqrt((2 * l + 1) / (4 * math.pi)) for l, r in enumerate(rows[:bands])])


class S2Transform(nn.Module):
    def __init__(self, bands):
        super().__init__()
        theta = (torch.arange(2 * bands) + 0.5) * math.pi / (2 * bands)
        self.bands = bands
        self.register_buffer("forward_basis", legendre(bands, theta) * torch.sin(theta) * math.pi / (2 * bands))
        self.register_buffer("backward_basis", legendre(bands, theta))

    def analyse(self, x):
        spectrum = torch.fft.rfft(x, dim=-1)[..., : self.bands] / x.size(-1)
        return (spectrum.unsqueeze(-3) * self.forward_basis[..., None]).sum(-2)

    def synthesise(self, coefficients, width):
        field = (coefficients.unsqueeze(-2) * self.backward_basis[..., None]).sum(-3)
        return torch.fft.irfft(field * width, n=width, dim=-1)


def kernel_coefficients(n_in, n_out, bands):
    scale = 1 / math.sqrt(n_in * bands)
    return nn.Parameter(scale * torch.randn(n_in, n_out, bands))  # BORN


def s2_mm(x, w):
    return torch.einsum("bilm,iol->bolm", x, w)  # COLLIDES


class S2Convolution(nn.Module):
    def __init__(self, n_in, n_out, bands):
        super().__init__()
        self.transform = S2Transform(bands)
        self.kernel = kernel_coefficients(n_in, n_out, bands)

    def forward(self, x):
        z = s2_mm(self.transform.analyse(x), self.kernel)
        return self.transform.synthesise(z, x.size(-1))


class S2Net(nn.Module):
    def __init__(self, bands=6, classes=4):
        super().__init__()
        self.conv1, self.conv2 = S2Convolution(1, 8, bands), S2Convolution(8, 8, bands)
        self.head = nn.Linear(8, classes)

    def forward(self, x):
        x = torch.relu(self.conv1(x))
        x = torch.relu(self.conv2(x))
        return self.head(x.mean((-2, -1)))


def equivariance_error(net, x, shift):
    a = net.conv1(x).roll(shift, -1)
    b = net.conv1(x.roll(shift, -1))
    return ((a - b).norm() / a.norm()).item()


if __name__ == "__main__":
    torch.manual_seed(2)
    net, x = S2Net(), torch.randn(3, 1, 12, 12)
    print(f"equivariance error {equivariance_error(net, x, 5):.2e}", tuple(net(x).shape))
