"""
title: multi-band spectral loss of a bf16 vocoder takes an rfft
expect: collision
thread: https://github.com/pytorch/pytorch/issues/117844
fix_at: 35, 36

Expectation, written first: the generator runs in bf16 and its waveform goes straight
to rfft, which has no bf16 on CPU. Birth: the generator's bf16 cast; a float cast in
the loss is as right.
"""
import torch
from torch import nn


class Generator(nn.Module):
    def __init__(self, mels=8, hop=8):
        super().__init__()
        self.pre = nn.Conv1d(mels, 32, 3, padding=1)
        self.up = nn.ConvTranspose1d(32, 16, hop, stride=hop)
        self.post = nn.Conv1d(16, 1, 7, padding=3)

    def forward(self, mel):
        h = nn.functional.leaky_relu(self.pre(mel), 0.1)
        h = nn.functional.leaky_relu(self.up(h), 0.1)
        return torch.tanh(self.post(h)).squeeze(1)


class SpectralLoss(nn.Module):
    def __init__(self, frame=64, hop=32):
        super().__init__()
        self.frame, self.hop = frame, hop
        self.register_buffer("window", torch.hann_window(frame))

    def magnitude(self, wav):
        frames = wav.unfold(-1, self.frame, self.hop)
        spec = torch.fft.rfft(frames * self.window.to(frames.dtype))  # COLLIDES
        return spec.abs().clamp_min(1e-5)

    def forward(self, fake, real):
        f, r = self.magnitude(fake), self.magnitude(real)
        return (f - r).abs().mean() + (f.log() - r.log()).abs().mean()


class Vocoder:
    def __init__(self, precision):
        torch.manual_seed(7)
        self.net = Generator()
        if precision == "bf16":
            self.net = self.net.to(torch.bfloat16)  # BORN
        self.criterion = SpectralLoss()
        self.opt = torch.optim.AdamW(self.net.parameters(), lr=2e-4, betas=(0.8, 0.99))

    def training_step(self, mel, wav):
        fake = self.net(mel.to(self.net.pre.weight.dtype))
        loss = self.criterion(fake, wav)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item()


vocoder = Vocoder("bf16")
for step in range(3):
    t = torch.arange(256) / 256
    wav = torch.sin(2 * torch.pi * (5 + step) * t).repeat(2, 1)
    mel = torch.randn(2, 8, 32)
    print("step", step, "loss", round(vocoder.training_step(mel, wav), 4))
