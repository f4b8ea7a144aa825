"""
title: VITS with fp16_run: the mel loss calls stft on the half waveform of the generator
expect: collision
thread: https://github.com/wenet-e2e/wetts/pull/217
fix_at: 32

Expectation, written first: the generator runs under float16 autocast, so the waveform it returns is half. The mel spectrogram for the loss is taken
outside of the autocast block and torch.stft has no transform for half on this device. The waveform must be cast to float before the spectrogram.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

hann_window, mel_basis = {}, {}


def mel_filters(n_mels, n_fft):
    g = torch.Generator().manual_seed(4)
    return torch.rand(n_mels, n_fft // 2 + 1, generator=g)


def spectral_normalize_torch(magnitudes):
    return torch.log(torch.clamp(magnitudes, min=1e-5))


def mel_spectrogram_torch(y, n_fft, num_mels, hop_size, win_size):
    key = f"{win_size}_{y.dtype}_{y.device}"
    if key not in hann_window:
        hann_window[key] = torch.hann_window(win_size).to(dtype=y.dtype, device=y.device)
        mel_basis[key] = mel_filters(num_mels, n_fft).to(dtype=y.dtype, device=y.device)
    pad = (n_fft - hop_size) // 2
    y = F.pad(y.unsqueeze(1), (pad, pad), mode="reflect").squeeze(1)
    spec = torch.stft(y, n_fft, hop_size, win_size, hann_window[key], center=False, return_complex=True)  # BORN COLLIDES
    spec = torch.sqrt(torch.view_as_real(spec).pow(2).sum(-1) + 1e-6)
    return spectral_normalize_torch(torch.matmul(mel_basis[key], spec))


class Generator(nn.Module):
    def __init__(self, n_latent=8, channels=16, rates=(4, 4)):
        super().__init__()
        self.conv_pre = nn.Conv1d(n_latent, channels, 7, padding=3)
        self.ups = nn.ModuleList(nn.ConvTranspose1d(channels, channels, 2 * u, u, padding=u // 2) for u in rates)
        self.conv_post = nn.Conv1d(channels, 1, 7, padding=3, bias=False)

    def forward(self, x):
        x = self.conv_pre(x)
        for up in self.ups:
            x = up(F.leaky_relu(x, 0.1))
        return torch.tanh(self.conv_post(F.leaky_relu(x)))  # BORN


def train_and_evaluate(hps, net_g, optim_g, loader):
    scaler = torch.amp.GradScaler("cpu", enabled=hps["fp16_run"])
    for z, y in loader:
        with torch.autocast("cpu", dtype=torch.float16, enabled=hps["fp16_run"]):  # BORN
            y_hat = net_g(z)
        y_mel = mel_spectrogram_torch(y.squeeze(1), *hps["mel"])
        y_hat_mel = mel_spectrogram_torch(y_hat.squeeze(1), *hps["mel"])  # BORN
        loss_mel = F.l1_loss(y_mel, y_hat_mel) * hps["c_mel"]
        optim_g.zero_grad()
        scaler.scale(loss_mel).backward()
        scaler.step(optim_g)
        scaler.update()
        print("loss_mel", loss_mel.item())


def main():
    torch.manual_seed(1234)
    hps = {"fp16_run": True, "c_mel": 45, "mel": (64, 20, 16, 64)}
    net_g = Generator()
    optim_g = torch.optim.AdamW(net_g.parameters(), 2e-4)
    loader = [(torch.randn(2, 8, 32), torch.rand(2, 1, 512) * 2 - 1) for _ in range(2)]
    train_and_evaluate(hps, net_g, optim_g, loader)


if __name__ == "__main__":
    main()
