"""
title: a denoiser fed a complex spectrogram after return_complex was set to please a newer torch
expect: collision
fix_at: 21, 34, 54, 55
modes: diagnose

After madhavmk/Noise2Noise-audio_denoising_without_clean_training_data#7 (Input type c10::complex<float> and bias type float).
Right change: torch.view_as_real (channels last) in the feature function.
"""
import math

import torch
import torch.nn as nn

N_FFT, HOP = 32, 16


def spectrogram(wave):
    window = torch.hann_window(N_FFT)
    spec = torch.stft(wave, N_FFT, HOP, window=window, return_complex=True)  # BORN
    return spec


class Noisy(torch.utils.data.Dataset):
    def __init__(self, n):
        t = torch.arange(512) / 512
        self.clean = [torch.sin(2 * math.pi * (4 + i) * t) for i in range(n)]

    def __len__(self):
        return len(self.clean)

    def __getitem__(self, i):
        c = self.clean[i]
        return spectrogram(c + 0.1 * torch.randn_like(c)), c


class Denoiser(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.enc = nn.Conv2d(1, width, 3, padding=1)
        self.dec = nn.Conv2d(width, 1, 3, padding=1)

    def forward(self, spec):
        x = spec.flatten(3) if spec.dim() > 3 else spec
        h = torch.relu(self.enc(x.unsqueeze(1)))  # COLLIDES
        return self.dec(h).squeeze(1)


torch.manual_seed(0)
loader = torch.utils.data.DataLoader(Noisy(8), batch_size=4)
net = Denoiser()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for noisy, clean in loader:
    target = spectrogram(clean).abs()
    mask = net(noisy)
    loss = (mask.abs().mean() - target.mean()) ** 2
    opt.zero_grad()
    loss.backward()
    opt.step()
print("loss", loss.item())
