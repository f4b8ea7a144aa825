"""
title: a vocoder is cast to bfloat16 for speed, its head makes a complex spectrum
expect: collision
fix_at: 27, 28, 29

After https://github.com/gemelo-ai/vocos/issues/40 and https://github.com/pytorch/pytorch/issues/117844.
Right: magnitude and phase are widened to float32 in the head.
"""
import torch
from torch import nn

torch.manual_seed(10)


class Head(nn.Module):
    def __init__(self, dim, size=32, hop=8):
        super().__init__()
        self.size, self.hop = size, hop
        self.out = nn.Linear(dim, size + 2)
        self.register_buffer("window", torch.hann_window(size), persistent=False)

    def forward(self, x):
        magnitude, phase = self.out(x).mT.chunk(2, dim=1)
        magnitude = magnitude.exp().clamp(max=100)
        return self.wave(magnitude, phase)

    def wave(self, magnitude, phase):
        spectrum = torch.complex(magnitude * phase.cos(), magnitude * phase.sin())  # COLLIDES
        return torch.istft(spectrum, self.size, self.hop, window=self.window.to(spectrum.real.dtype))


class Vocoder(nn.Module):
    def __init__(self, mels=20, dim=24):
        super().__init__()
        self.body = nn.Sequential(nn.Conv1d(mels, dim, 3, padding=1), nn.GELU(), nn.Conv1d(dim, dim, 3, padding=1))
        self.head = Head(dim)

    def forward(self, mel):
        return self.head(self.body(mel).mT)


class Service:
    def __init__(self, dtype):
        self.dtype = dtype
        self.model = Vocoder().eval().to(dtype)  # BORN

    @torch.inference_mode()
    def speak(self, mel):
        return self.model(mel.to(self.dtype)).float()


service = Service(torch.bfloat16)
print(tuple(service.speak(torch.randn(1, 20, 12)).shape))
