"""
title: log-mel features of the audio module handed to the half encoder
expect: clean
thread: https://github.com/openai/whisper/pull/2390
measured: language [1, 1, 1, 2] probability 0.19 0.19 0.19 0.19
suspect: 58 tolerant (normalised features between -1.5 and 1.5 keep three digits in half)

Expectation, written first: the power and the clamp at 1e-10 are computed in float32; only the normalised features are
cast to half for the encoder, where they lie within about two of zero. The decisions stay what they are in float32.
"""
import torch
import torch.nn.functional as F
from torch import nn

N_FFT = 400
HOP_LENGTH = 160
SAMPLE_RATE = 16000


def mel_filters(n_mels):
    freqs = torch.linspace(0, SAMPLE_RATE / 2, N_FFT // 2 + 1)
    edges = torch.linspace(0, SAMPLE_RATE / 2, n_mels + 2)
    rising = (freqs - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - freqs) / (edges[2:] - edges[1:-1])[:, None]
    return torch.minimum(rising, falling).clamp(min=0) * 2 / SAMPLE_RATE * n_mels


def pad_or_trim(array, length):
    if array.shape[-1] > length:
        return array[..., :length]
    return F.pad(array, (0, length - array.shape[-1]))


def log_mel_spectrogram(audio, n_mels=40):
    window = torch.hann_window(N_FFT)
    stft = torch.stft(audio, N_FFT, HOP_LENGTH, window=window, return_complex=True)
    magnitudes = stft[..., :-1].abs() ** 2
    mel_spec = mel_filters(n_mels) @ magnitudes
    log_spec = torch.clamp(mel_spec, min=1e-10).log10()
    log_spec = torch.maximum(log_spec, log_spec.max() - 8.0)
    return (log_spec + 4.0) / 4.0


class AudioEncoder(nn.Module):
    def __init__(self, n_mels, n_state):
        super().__init__()
        self.conv1 = nn.Conv1d(n_mels, n_state, 3, padding=1)
        self.head = nn.Linear(n_state, 6)

    def forward(self, mel):
        hidden = F.gelu(self.conv1(mel.to(self.conv1.weight.dtype)))
        return self.head(hidden.mean(-1)).softmax(-1)


@torch.no_grad()
def detect_language(encoder, clips):
    mels = torch.stack([log_mel_spectrogram(pad_or_trim(c, SAMPLE_RATE)) for c in clips])
    return encoder(mels.half())


def main():
    torch.manual_seed(2390)
    encoder = AudioEncoder(40, 32).eval()
    t = torch.arange(12000) / SAMPLE_RATE
    clips = [0.1 * torch.sin(2 * torch.pi * f * t) + 0.002 * torch.randn(12000) for f in (220, 900, 2500, 6000)]
    probs = detect_language(encoder, clips)
    print("language", probs.argmax(-1).tolist(), "probability", " ".join(f"{p:.2f}" for p in probs.amax(-1)))


main()
