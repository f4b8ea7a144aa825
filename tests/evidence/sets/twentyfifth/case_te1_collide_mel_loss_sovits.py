"""
title: Mel loss of a half-precision generator output through torch.stft
expect: collision
thread: https://github.com/Francis-Komizu/Sovits/issues/4
fix_at: (none beside the marked)

Expectation, written first: With fp16_run the generator is made half and y_hat is half. mel_spectrogram_torch
casts the Hann window to the dtype of y and calls torch.stft; the FFT has no half support on this machine and
raises. The target mel is made from the float32 wave and works.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

mel_basis = {}
hann_window = {}


def mel_filters(n_fft, num_mels, sampling_rate):
    freqs = torch.linspace(0, sampling_rate / 2, n_fft // 2 + 1)
    points = torch.linspace(0, 2595 * torch.log10(torch.tensor(1 + sampling_rate / 1400)).item(), num_mels + 2)
    hz = 700 * (10 ** (points / 2595) - 1)
    up = (freqs[None] - hz[:-2, None]) / (hz[1:-1] - hz[:-2])[:, None]
    down = (hz[2:, None] - freqs[None]) / (hz[2:] - hz[1:-1])[:, None]
    return torch.minimum(up, down).clamp(min=0)


def mel_spectrogram_torch(y, n_fft, num_mels, sampling_rate, hop_size):
    key = str(y.dtype)
    if key not in mel_basis:
        mel_basis[key] = mel_filters(n_fft, num_mels, sampling_rate).to(y.dtype)
        hann_window[key] = torch.hann_window(n_fft).to(y.dtype)
    y = F.pad(y.unsqueeze(1), ((n_fft - hop_size) // 2,) * 2).squeeze(1)
    spec = torch.stft(y, n_fft, hop_size, window=hann_window[key], center=False, return_complex=True)  # COLLIDES
    spec = torch.sqrt(spec.abs().pow(2) + 1e-6)
    return torch.log(torch.clamp(mel_basis[key] @ spec, min=1e-5))


class SynthesizerTrn(nn.Module):
    def __init__(self, unit_dim, hop):
        super().__init__()
        self.pre = nn.Conv1d(unit_dim, 16, 5, padding=2)
        self.dec = nn.ConvTranspose1d(16, 1, hop, stride=hop)

    def forward(self, c):
        return torch.tanh(self.dec(torch.relu(self.pre(c)))).squeeze(1)


class HParams:
    fp16_run = True  # BORN
    n_fft, hop, num_mels, sr = 128, 32, 10, 16000
    c_mel = 45.0


def make_loader(hps, batches=2):
    for _ in range(batches):
        yield torch.randn(2, 8, 24), torch.rand(2, 24 * hps.hop) - 0.5


def train_and_evaluate(hps):
    net_g = SynthesizerTrn(8, hps.hop)
    if hps.fp16_run:
        net_g = net_g.half()  # BORN
    optim_g = torch.optim.SGD(net_g.parameters(), lr=1e-3)
    args = (hps.n_fft, hps.num_mels, hps.sr, hps.hop)
    for i, (units, y) in enumerate(make_loader(hps)):
        y_mel = mel_spectrogram_torch(y, *args)
        y_hat = net_g(units.to(net_g.pre.weight.dtype))  # BORN
        y_hat_mel = mel_spectrogram_torch(y_hat, *args)  # BORN
        loss_mel = F.l1_loss(y_mel, y_hat_mel.float()) * hps.c_mel
        optim_g.zero_grad()
        loss_mel.backward()
        optim_g.step()
        print(f"step {i} loss_mel {loss_mel.item():.3f}")


if __name__ == "__main__":
    torch.manual_seed(4)
    train_and_evaluate(HParams())
