"""
title: a Fourier operator whose numpy grid makes the spectrum complex128
expect: collision
fix_at: 41

After lenML/Speech-AI-Forge#107's family (expected scalar type ComplexDouble ...) in an FNO: weights are complex64.
Right change: the grid in float32.
"""
import numpy as np
import torch
import torch.nn as nn


def unit_grid(n):
    return torch.from_numpy(np.linspace(0.0, 1.0, n))  # BORN


class SpectralConv1d(nn.Module):
    def __init__(self, width, modes):
        super().__init__()
        self.modes = modes
        self.weight = nn.Parameter(torch.randn(width, width, modes, dtype=torch.cfloat) / width)

    def forward(self, x):
        xf = torch.fft.rfft(x)[..., :self.modes]
        yf = torch.einsum("bim,iom->bom", xf, self.weight)  # COLLIDES
        return torch.fft.irfft(yf, n=x.shape[-1])


class FNO(nn.Module):
    def __init__(self, width=8, modes=5, depth=2):
        super().__init__()
        self.lift = nn.Linear(1, width)
        self.phase = nn.Parameter(torch.zeros(width, 1))
        self.spectral = nn.ModuleList(SpectralConv1d(width, modes) for _ in range(depth))
        self.local = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in range(depth))
        self.proj = nn.Linear(width, 1)

    def forward(self, a):
        h = self.lift(a.unsqueeze(-1)).transpose(1, 2)
        h = h + torch.sin(2 * torch.pi * unit_grid(a.shape[-1]) + self.phase)
        for s, l in zip(self.spectral, self.local):
            h = torch.relu(s(h) + l(h))
        return self.proj(h.transpose(1, 2)).squeeze(-1)


torch.manual_seed(0)
net = FNO()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for step in range(3):
    a = torch.randn(4, 32)
    u = torch.cumsum(a, -1) / 32
    loss = (net(a) - u).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print("rel loss", loss.item())
