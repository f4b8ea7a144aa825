"""
title: clips are packed as int16 to halve a data set and unpacked before the features
expect: clean
thread: https://github.com/qiuqiangkong/audioset_tagging_cnn/issues/37
measured: 220.1 Hz at -8.7 dB; 441.5 Hz at -22.7 dB; 1000.0 Hz at -36.7 dB

Expectation, written first: the suspect is the cast of a waveform to int16, but it is clipped and scaled by 32767
before and divided by it after; the rounding is ninety decibels down. Pitch and loudness are those of a wide run.
"""
import math

import torch


def float32_to_int16(x):
    x = x.clamp(-1, 1)
    return (x * 32767.0).round().to(torch.int16)


def int16_to_float32(x):
    return x.float() / 32767.0


class PackedDataset:
    def __init__(self):
        self.rows = []

    def add(self, waveform, target):
        self.rows.append((float32_to_int16(waveform), target))

    def __getitem__(self, i):
        packed, target = self.rows[i]
        return int16_to_float32(packed), target

    def __len__(self):
        return len(self.rows)


class Spectrogram:
    def __init__(self, n_fft=1024, hop=256):
        self.n_fft, self.hop = n_fft, hop
        self.window = torch.hann_window(n_fft)

    def __call__(self, wave):
        frames = wave.unfold(-1, self.n_fft, self.hop) * self.window
        return torch.fft.rfft(frames).abs().square()


class Features:
    def __init__(self, rate):
        self.rate, self.spectrogram = rate, Spectrogram()

    def pitch(self, wave):
        power = self.spectrogram(wave).mean(0)
        k = int(power[1:-1].argmax()) + 1
        a, b, c = power[k - 1].log(), power[k].log(), power[k + 1].log()
        offset = 0.5 * (a - c) / (a - 2 * b + c)
        return ((k + offset) * self.rate / self.spectrogram.n_fft).item()

    def loudness(self, wave):
        return 10 * math.log10(wave.square().mean().item())


def instrument(hz, level, rate, gen, seconds=1.0):
    t = torch.arange(int(rate * seconds)) / rate
    tone = sum(torch.sin(2 * math.pi * hz * k * t) / k**2 for k in (1, 2, 3))
    return level * tone + 0.001 * torch.randn(len(t), generator=gen)


def main(rate=16000):
    gen = torch.Generator().manual_seed(45)
    dataset, features = PackedDataset(), Features(rate)
    for hz, level in ((220.0, 0.5), (441.3, 0.1), (1000.0, 0.02)):
        dataset.add(instrument(hz, level, rate, gen), hz)
    for i in range(len(dataset)):
        wave, hz = dataset[i]
        print(f"{features.pitch(wave):.1f} Hz at {features.loudness(wave):.1f} dB", end="; " if i < 2 else "\n")


main()
