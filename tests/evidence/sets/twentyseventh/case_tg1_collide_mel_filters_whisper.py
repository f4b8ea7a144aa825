"""
title: log_mel_spectrogram of a float64 waveform
expect: collision
thread: https://github.com/openai/whisper/pull/2831
fix_at: (none beside the marked)

Expectation, written first: a waveform made in NumPy is float64 and log_mel_spectrogram keeps it so; stft gives
double magnitudes. The cached filter bank is float32, and filters @ magnitudes does not promote: it raises.
"""
from functools import lru_cache

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

SAMPLE_RATE, N_FFT, HOP_LENGTH, CHUNK_SAMPLES = 16000, 400, 160, 8000


def pad_or_trim(array, length=CHUNK_SAMPLES, axis=-1):
    if torch.is_tensor(array):
        if array.shape[axis] > length:
            array = array.index_select(dim=axis, index=torch.arange(length))
        if array.shape[axis] < length:
            array = F.pad(array, (0, length - array.shape[axis]))
        return array
    return np.pad(array[:length], (0, max(0, length - len(array))))


@lru_cache(maxsize=None)
def mel_filters(n_mels):
    freqs = np.fft.rfftfreq(N_FFT, 1 / SAMPLE_RATE)
    mels = np.linspace(0, 2595 * np.log10(1 + SAMPLE_RATE / 2 / 700), n_mels + 2)
    edges = 700 * (10 ** (mels / 2595) - 1)
    rise = (freqs - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    fall = (edges[2:, None] - freqs) / (edges[2:] - edges[1:-1])[:, None]
    bank = np.maximum(0, np.minimum(rise, fall)) * (2 / (edges[2:] - edges[:-2]))[:, None]
    return torch.from_numpy(bank.astype(np.float32))  # BORN


def log_mel_spectrogram(audio, n_mels=80, padding=0):
    if not torch.is_tensor(audio):
        audio = torch.from_numpy(audio)  # BORN
    if padding > 0:
        audio = F.pad(audio, (0, padding))
    window = torch.hann_window(N_FFT).to(audio.device)
    stft = torch.stft(audio, N_FFT, HOP_LENGTH, window=window, return_complex=True)
    magnitudes = stft[..., :-1].abs() ** 2
    filters = mel_filters(n_mels)  # BORN
    mel_spec = filters @ magnitudes  # BORN COLLIDES
    log_spec = torch.clamp(mel_spec, min=1e-10).log10()
    log_spec = torch.maximum(log_spec, log_spec.max() - 8.0)
    return (log_spec + 4.0) / 4.0


class AudioEncoder(nn.Module):
    def __init__(self, n_mels, n_state):
        super().__init__()
        self.conv1 = nn.Conv1d(n_mels, n_state, kernel_size=3, padding=1)
        self.conv2 = nn.Conv1d(n_state, n_state, kernel_size=3, stride=2, padding=1)

    def forward(self, x):
        return F.gelu(self.conv2(F.gelu(self.conv1(x)))).permute(0, 2, 1)


def synth_speech(seconds=0.4):
    t = np.arange(int(seconds * SAMPLE_RATE)) / SAMPLE_RATE
    audio = 0.4 * np.sin(2 * np.pi * 180 * t) + 0.2 * np.sin(2 * np.pi * 720 * t)  # BORN
    return audio * np.hanning(len(t))


@torch.no_grad()
def main():
    torch.manual_seed(2831)
    audio = pad_or_trim(synth_speech())
    mel = log_mel_spectrogram(audio, n_mels=40)
    print("mel", tuple(mel.shape), "mean", round(mel.mean().item(), 4))
    features = AudioEncoder(40, 16)(mel.float().unsqueeze(0))
    print("features", tuple(features.shape), "norm", round(features.norm().item(), 3))


if __name__ == "__main__":
    main()
