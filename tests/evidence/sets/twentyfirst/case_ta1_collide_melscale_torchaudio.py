"""
title: mel spectrogram of a numpy sine in float64: filter bank buffer is float32
expect: collision
thread: https://github.com/pytorch/audio/issues/1753
fix_at: 47

Expectation, written first: the waveform comes from NumPy and stays float64 through the power spectrogram, but the
mel filter bank is a float32 buffer of the module, so the matmul of MelScale raises. Either the waveform is made
float32, or the transform is moved to float64 like any module.
"""
import math

import numpy as np
import torch
import torch.nn as nn


def melscale_fbanks(n_freqs, f_min, f_max, n_mels, sample_rate):
    all_freqs = torch.linspace(0, sample_rate // 2, n_freqs)
    m_min = 2595.0 * math.log10(1.0 + f_min / 700.0)
    m_max = 2595.0 * math.log10(1.0 + f_max / 700.0)
    f_pts = 700.0 * (10 ** (torch.linspace(m_min, m_max, n_mels + 2) / 2595.0) - 1.0)
    f_diff = f_pts[1:] - f_pts[:-1]
    slopes = f_pts.unsqueeze(0) - all_freqs.unsqueeze(1)
    down = -slopes[:, :-2] / f_diff[:-1]
    up = slopes[:, 2:] / f_diff[1:]
    return torch.clamp(torch.minimum(down, up), min=0.0)


class Spectrogram(nn.Module):
    def __init__(self, n_fft=256, hop_length=128, power=2.0):
        super().__init__()
        self.n_fft, self.hop_length, self.power = n_fft, hop_length, power
        self.register_buffer("window", torch.hann_window(n_fft))

    def forward(self, waveform):
        frames = waveform.unfold(-1, self.n_fft, self.hop_length) * self.window
        return torch.fft.rfft(frames).abs().pow(self.power).transpose(-1, -2)


class MelScale(nn.Module):
    def __init__(self, n_mels, sample_rate, n_stft):
        super().__init__()
        self.register_buffer("fb", melscale_fbanks(n_stft, 0.0, sample_rate / 2, n_mels, sample_rate))

    def forward(self, specgram):
        return torch.matmul(specgram.transpose(-1, -2), self.fb).transpose(-1, -2)  # COLLIDES


class MelSpectrogram(nn.Module):
    def __init__(self, sample_rate=16000, n_fft=256, n_mels=24):
        super().__init__()
        self.spectrogram = Spectrogram(n_fft, n_fft // 2)
        self.mel_scale = MelScale(n_mels, sample_rate, n_fft // 2 + 1)

    def forward(self, waveform):
        return self.mel_scale(self.spectrogram(waveform))


def load_tone(freq, sample_rate, seconds=0.25):
    t = np.arange(int(sample_rate * seconds)) / sample_rate
    return torch.from_numpy(np.sin(2 * np.pi * freq * t))  # BORN


if __name__ == "__main__":
    sample_rate = 16000
    transform = MelSpectrogram(sample_rate=sample_rate)  # BORN
    batch = torch.stack([load_tone(f, sample_rate) for f in (220.0, 440.0, 880.0)])
    mel = transform(batch)
    print("mel", tuple(mel.shape), "argmax", mel.mean(-1).argmax(-1).tolist())
