"""
title: a limited mix is written as 16-bit samples, its full-scale peaks wrap to the other end
expect: silent:overflow|wraparound|integer-overflow|downcast
fix_at: 33

After https://github.com/adamstark/AudioFile/issues/8, https://github.com/devgianlu/go-librespot/pull/339 and
https://github.com/claritychallenge/clarity/issues/311.
Right: samples are clamped to the range of int16 before the cast.
"""
import math

import torch
import torch.nn.functional as F

torch.manual_seed(704)


class Mixer:
    """Adds voices and limits the sum to full scale."""

    def __init__(self, rate=8000, drive=1.4):
        self.rate, self.drive = rate, drive

    def __call__(self, pitches, seconds=0.5):
        t = torch.arange(int(self.rate * seconds)) / self.rate
        voices = torch.stack([torch.sin(2 * math.pi * pitch * t + torch.rand(()) * 6) for pitch in pitches])
        return (voices.sum(0) / len(pitches) ** 0.5 * self.drive).clamp(-1.0, 1.0)


class Pcm:
    """What is written to the file and read back."""

    scale = 32768

    def write(self, wave):
        return (wave * self.scale).round().to(torch.int16)  # BORN

    def read(self, samples):
        return samples.float() / self.scale


def snr(wave, other):
    return (10 * torch.log10(wave.square().mean() / (wave - other).square().mean().clamp(min=1e-12))).item()


def clicks(wave):
    """Jumps of a whole range between two samples."""
    return (wave.diff().abs() > 1.2).sum().item()


def flatness(wave, size=256):
    spectrum = torch.stft(wave, size, window=torch.hann_window(size), return_complex=True).abs().square().mean(-1)
    return (spectrum.log().mean().exp() / spectrum.mean()).item()


mixer, file = Mixer(), Pcm()
songs = [mixer(pitches) for pitches in ((220, 277, 330), (196, 247, 294), (262, 330, 392))]
loaded = [file.read(file.write(song)) for song in songs]
print("signal to noise", round(sum(map(snr, songs, loaded)) / 3, 1), "clicks", sum(map(clicks, loaded)),
      "flatness", round(sum(map(flatness, loaded)) / 3, 4), "before", round(sum(map(flatness, songs)) / 3, 4))
