"""
title: a Fourier layer fixes its weights to complex64 in a program that works in float64
expect: collision

After neuraloperator/neuraloperator#521 ("the dtypes don't fit", weights are always complex) and #88 (dtype=torch.cfloat is written down): einsum of complex128 coefficients with complex64 weights is
refused. Right: let the weight follow the working precision (complex128 here, or no dtype that is written down).
"""
import math

import torch
from torch import nn
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
torch.manual_seed(4)


class SpectralConv(nn.Module):
    def __init__(self, width, modes):
        super().__init__()
        self.modes = modes
        scale = 1 / (width * width)
        self.weight = nn.Parameter(scale * torch.randn(width, width, modes, dtype=torch.complex64))  # BORN

    def forward(self, x):
        spectrum = torch.fft.rfft(x)
        kept = torch.einsum("bix,iox->box", spectrum[:, :, : self.modes], self.weight)  # COLLIDES
        kept = F.pad(kept, (0, spectrum.shape[-1] - self.modes))
        return torch.fft.irfft(kept, n=x.shape[-1])


class FourierOperator(nn.Module):
    def __init__(self, width=8, modes=4, depth=2):
        super().__init__()
        self.lift = nn.Conv1d(2, width, 1)
        self.spectral = nn.ModuleList(SpectralConv(width, modes) for _ in range(depth))
        self.local = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in range(depth))
        self.drop = nn.Conv1d(width, 1, 1)

    def forward(self, u):
        grid = torch.linspace(0, 1, u.shape[-1]).expand(u.shape[0], 1, -1)
        x = self.lift(torch.cat([u[:, None], grid], dim=1))
        for spectral, local in zip(self.spectral, self.local):
            x = F.gelu(spectral(x) + local(x))
        return self.drop(x)[:, 0]


def heat_data(samples, points, time=0.01):
    x = torch.linspace(0, 1, points)
    k = torch.arange(1, 5)
    amplitude = torch.randn(samples, 4) / k
    basis = torch.sin(math.pi * k[:, None] * x)
    decay = torch.exp(-((math.pi * k) ** 2) * time)
    return amplitude @ basis, (amplitude * decay) @ basis


def main():
    before, after = heat_data(16, 32)
    model = FourierOperator()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(4):
        loss = F.mse_loss(model(before), after)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("loss", loss.item())


main()
