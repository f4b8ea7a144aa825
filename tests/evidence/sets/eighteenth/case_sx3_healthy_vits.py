"""
title: VITS-style generator trains under autocast, mel spectrograms are taken with autocast off in float32
expect: clean
thread: https://github.com/jaywalnut310/vits/issues/15
measured: mel loss 178 -> 73, torch.float32
suspect: 29 necessary

Expectation, written first: the generator and the discriminator run in bfloat16 under autocast. The mel function leaves
autocast and widens the waveform before the STFT, log and L1, and the adversarial losses call float() on the logits.
Parameters, gradients and optimiser state stay float32, nothing is lost and nothing collides.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

mel_basis, hann_window = {}, {}


def mel_filter(n_fft, num_mels, sampling_rate):
    edges = 700 * (10 ** (torch.linspace(0, 2595 * torch.log10(torch.tensor(1 + sampling_rate / 1400)), num_mels + 2) / 2595) - 1)
    freqs = torch.linspace(0, sampling_rate / 2, n_fft // 2 + 1)
    up = (freqs - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    down = (edges[2:, None] - freqs) / (edges[2:] - edges[1:-1])[:, None]
    return torch.minimum(up, down).clamp(min=0)


def mel_spectrogram_torch(y, n_fft=128, num_mels=20, sampling_rate=8000, hop_size=32, win_size=128):
    with torch.autocast("cpu", enabled=False):
        y = y.float()
        key = str(y.dtype) + "_" + str(y.device)
        if key not in mel_basis:
            mel_basis[key] = mel_filter(n_fft, num_mels, sampling_rate).to(dtype=y.dtype, device=y.device)
            hann_window[key] = torch.hann_window(win_size).to(dtype=y.dtype, device=y.device)
        pad = (n_fft - hop_size) // 2
        y = F.pad(y, (pad, pad), mode="reflect").squeeze(1)
        spec = torch.stft(y, n_fft, hop_size, win_size, hann_window[key], center=False, return_complex=True)
        spec = torch.sqrt(torch.view_as_real(spec).pow(2).sum(-1) + 1e-6)
        return torch.log(torch.clamp(mel_basis[key] @ spec, min=1e-5))


class Generator(nn.Module):
    def __init__(self, num_mels=20, channels=32):
        super().__init__()
        self.conv_pre = nn.Conv1d(num_mels, channels, 7, padding=3)
        self.ups = nn.ModuleList([nn.ConvTranspose1d(channels, 16, 16, 8, 4), nn.ConvTranspose1d(16, 8, 8, 4, 2)])
        self.conv_post = nn.Conv1d(8, 1, 7, padding=3)

    def forward(self, x):
        x = self.conv_pre(x)
        for up in self.ups:
            x = up(F.leaky_relu(x, 0.1))
        return torch.tanh(self.conv_post(F.leaky_relu(x)))


class DiscriminatorS(nn.Module):
    def __init__(self):
        super().__init__()
        self.convs = nn.Sequential(nn.Conv1d(1, 8, 15, 4, 7), nn.LeakyReLU(0.1), nn.Conv1d(8, 1, 3, 1, 1))

    def forward(self, x):
        return self.convs(x).flatten(1)


def train_step(net_g, net_d, optim_g, optim_d, y):
    mel = mel_spectrogram_torch(y)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y_hat = net_g(mel)
        d_real, d_fake = net_d(y), net_d(y_hat.detach())
    loss_d = ((1 - d_real.float()) ** 2).mean() + (d_fake.float() ** 2).mean()
    optim_d.zero_grad()
    loss_d.backward()
    optim_d.step()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        d_fake = net_d(y_hat)
        loss_mel = F.l1_loss(mel, mel_spectrogram_torch(y_hat)) * 45
    loss_gen = ((1 - d_fake.float()) ** 2).mean()
    optim_g.zero_grad()
    (loss_gen + loss_mel).backward()
    optim_g.step()
    return loss_d.item(), loss_mel.item(), loss_mel.dtype


if __name__ == "__main__":
    torch.manual_seed(0)
    net_g, net_d = Generator(), DiscriminatorS()
    optim_g, optim_d = (torch.optim.AdamW(n.parameters(), 2e-3, betas=(0.8, 0.99)) for n in (net_g, net_d))
    t = torch.arange(2048) / 8000
    y = torch.stack([0.5 * torch.sin(2 * torch.pi * f * t) for f in (220, 330, 440, 550)])[:, None]
    history = [train_step(net_g, net_d, optim_g, optim_d, y) for _ in range(40)]
    print(f"mel loss {history[0][1]:.0f} -> {history[-1][1]:.0f}, {history[-1][2]}")
