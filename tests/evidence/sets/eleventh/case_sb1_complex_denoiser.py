"""
title: the adjoint of a new Fourier physics stays complex and reaches the denoiser of a plug-and-play solver
expect: collision
thread: https://github.com/deepinv/deepinv/issues/551
fix_at: 33, 45, 56

Expectation, written first: the subclass replaces A_adjoint by an inverse transform and returns its complex result;
the prior is a real convolution and refuses complex input.
"""
import torch
from torch import nn


class LinearPhysics:
    def A(self, x):
        raise NotImplementedError

    def A_adjoint(self, y):
        raise NotImplementedError

    def grad(self, x, y):
        return self.A_adjoint(self.A(x) - y)


class MaskedFourier(LinearPhysics):
    def __init__(self, mask):
        self.mask = mask

    def A(self, x):
        return torch.fft.fft2(x, norm="ortho") * self.mask

    def A_adjoint(self, y):
        return torch.fft.ifft2(y * self.mask, norm="ortho")  # BORN


class Denoiser(nn.Module):
    def __init__(self, channels=1, width=8):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(),
                                  nn.Conv2d(width, channels, 3, padding=1))
        nn.init.zeros_(self.body[-1].weight)
        nn.init.zeros_(self.body[-1].bias)

    def forward(self, x):
        return x - self.body(x)  # COLLIDES


class PnP:
    def __init__(self, prior, step=0.9, iterations=8):
        self.prior, self.step, self.iterations = prior, step, iterations

    @torch.no_grad()
    def __call__(self, y, physics):
        x = physics.A_adjoint(y)
        for _ in range(self.iterations):
            z = x - self.step * physics.grad(x, y)
            x = self.prior(z)
        return x


def phantom(n=32):
    y, x = torch.meshgrid(torch.linspace(-1, 1, n), torch.linspace(-1, 1, n), indexing="ij")
    disc = ((x / 0.7) ** 2 + (y / 0.9) ** 2 < 1).float()
    hole = ((x - 0.2) ** 2 + (y + 0.3) ** 2 < 0.05).float()
    return (disc - 0.6 * hole)[None, None]


def main():
    torch.manual_seed(0)
    image = phantom()
    mask = (torch.rand(1, 1, 32, 32) < 0.6).float()
    physics = MaskedFourier(mask)
    solver = PnP(Denoiser())
    out = solver(physics.A(image), physics)
    print(f"error {(out - image).norm().item() / image.norm().item():.3f}")


main()
