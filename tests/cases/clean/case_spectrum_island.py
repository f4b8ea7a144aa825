"""
title: a half convolutional network with a Fourier layer that needs float32
expect: clean

There is no half FFT on this device: in, out, and back.
"""
import torch
from torch import nn


class Mix(nn.Module):
    def __init__(self, width, kept):
        super().__init__()
        self.kept = kept
        self.filter = nn.Parameter(torch.randn(width, kept, 2) * 0.1)

    def forward(self, x):
        spectrum = torch.fft.rfft(x.float(), dim=-1)
        low = spectrum[..., : self.kept] * torch.view_as_complex(self.filter.float())
        return torch.fft.irfft(low, n=x.shape[-1], dim=-1).to(x.dtype)


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.mix, self.local = Mix(width, 6), nn.Conv1d(width, width, 3, padding=1)

    def forward(self, x):
        return x + torch.relu(self.mix(x) + self.local(x))


torch.manual_seed(0)
model = nn.Sequential(nn.Conv1d(1, 8, 1), Layer(8), Layer(8), nn.Conv1d(8, 1, 1)).half().eval()
with torch.no_grad():
    print(model(torch.randn(2, 1, 32).half()).dtype)