"""
title: a voice generator runs in float16 and its wave goes through the mel function of the loss
expect: collision
thread: https://github.com/wenet-e2e/wetts/pull/217
fix_at: 14, 30, 31, 32, 33, 55, 59, 65, 66

Expectation, written first: fp16_run turns the generator to half, its wave is float16, the window is cached in the
wave's dtype, and the short-time Fourier transform has no half version.
"""
import torch
import torch.nn.functional as F
from torch import nn

HPS = {"fp16_run": True, "n_fft": 256, "hop": 64, "mels": 20, "rate": 8000}
mel_basis, hann_window = {}, {}


def triangles(rate, n_fft, mels):
    top = 2595 * torch.log10(torch.tensor(1 + rate / 2 / 700))
    points = 700 * (10 ** (torch.linspace(0, top.item(), mels + 2) / 2595) - 1)
    f = torch.linspace(0, rate / 2, n_fft // 2 + 1)[:, None]
    up = (f - points[:-2]) / (points[1:-1] - points[:-2])
    down = (points[2:] - f) / (points[2:] - points[1:-1])
    return torch.minimum(up, down).clamp(min=0).T


def mel_spectrogram_torch(y, n_fft, mels, rate, hop):
    key = str(y.dtype)
    if key not in hann_window:
        hann_window[key] = torch.hann_window(n_fft).to(dtype=y.dtype)
        mel_basis[key] = triangles(rate, n_fft, mels).to(dtype=y.dtype)
    y = F.pad(y.unsqueeze(1), ((n_fft - hop) // 2,) * 2, mode="reflect").squeeze(1)
    spec = torch.stft(y, n_fft, hop, window=hann_window[key], center=False, return_complex=True)  # COLLIDES
    mel = torch.matmul(mel_basis[key], spec.abs())
    return torch.log(mel.clamp(min=1e-5))


class Generator(nn.Module):
    def __init__(self, inner=12, width=24):
        super().__init__()
        self.conv_pre = nn.Conv1d(inner, width, 7, padding=3)
        self.up1 = nn.ConvTranspose1d(width, width, 16, 8, padding=4)
        self.up2 = nn.ConvTranspose1d(width, width // 2, 16, 8, padding=4)
        self.conv_post = nn.Conv1d(width // 2, 1, 7, padding=3)

    def forward(self, z):
        x = F.leaky_relu(self.up1(self.conv_pre(z)), 0.1)
        return torch.tanh(self.conv_post(F.leaky_relu(self.up2(x), 0.1)))


class Synthesizer:
    def __init__(self, hps):
        self.net_g = Generator().eval()
        if hps["fp16_run"]:
            self.net_g = self.net_g.half()  # BORN

    @torch.no_grad()
    def infer(self, z):
        return self.net_g(z.to(next(self.net_g.parameters()).dtype)).squeeze(1)


def evaluate(hps, synthesizer, loader):
    total = 0.0
    for z, wave in loader:
        y_hat = synthesizer.infer(z)
        y_hat_mel = mel_spectrogram_torch(y_hat, hps["n_fft"], hps["mels"], hps["rate"], hps["hop"])
        mel = mel_spectrogram_torch(wave, hps["n_fft"], hps["mels"], hps["rate"], hps["hop"])
        total += F.l1_loss(mel, y_hat_mel).item()
    return total / len(loader)


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(6)
    t = torch.arange(1024) / HPS["rate"]
    waves = [torch.sin(6.2832 * f * t).expand(2, -1) for f in (220.0, 440.0)]
    loader = [(torch.randn(2, 12, 16, generator=gen), w) for w in waves]
    print(f"mel distance {evaluate(HPS, Synthesizer(HPS), loader):.2f}")


main()
