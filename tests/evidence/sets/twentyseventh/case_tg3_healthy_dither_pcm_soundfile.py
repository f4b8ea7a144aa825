"""
title: A dithered master is written as 16-bit PCM
expect: clean
thread: https://github.com/bastibe/python-soundfile/issues/257
measured: level -10.6 in the file -10.6 tone -14.6 in the file -14.6 / values of the dither [-1, 0, 1] peak 29204
suspect: 32 (rounded after triangular dither, 90 dB below the music)

Expectation, written first: A 16-bit file holds whole steps of 1/32768; the signal gets triangular dither of one step,
is rounded and clamped to the range, and only then cast. The rounding is about 90 dB below the music, so the
printed levels, to a tenth of a decibel, are those of the float signal. The dither takes -1, 0 and 1.
"""
import math

import torch
import torch.nn.functional as F


class SoundFile:
    """Keeps the frames as the wav file would."""

    subtypes = {"PCM_16": (torch.int16, 2 ** 15), "FLOAT": (torch.float32, 1)}

    def __init__(self, samplerate, subtype):
        self.samplerate = samplerate
        self.dtype, self.full_scale = self.subtypes[subtype]
        self.frames = None

    def write(self, data):
        if self.full_scale > 1:
            data = torch.round(data * self.full_scale)
            data = data.clamp(-self.full_scale, self.full_scale - 1)
        self.frames = data.to(self.dtype)

    def read(self):
        return self.frames.float() / self.full_scale


def triangular_noise(shape, step, generator):
    return (torch.rand(shape, generator=generator) - torch.rand(shape, generator=generator)) * step


class MasteringChain:
    def __init__(self, samplerate, ceiling_db=-1.0):
        self.samplerate = samplerate
        self.ceiling = 10 ** (ceiling_db / 20)

    def highpass(self, x, taps=101, cutoff=40.0):
        n = torch.arange(taps) - (taps - 1) / 2
        lowpass = torch.sinc(2 * cutoff / self.samplerate * n) * torch.hann_window(taps, periodic=False)
        kernel = -lowpass / lowpass.sum()
        kernel[taps // 2] += 1.0
        return F.conv1d(x[:, None], kernel[None, None], padding=taps // 2)[:, 0]

    def normalize(self, x):
        return x * (self.ceiling / x.abs().max())

    def __call__(self, x):
        return self.normalize(self.highpass(x))


def level_db(x):
    return 20 * math.log10(x.square().mean().sqrt().item())


def tone_db(x, freq, samplerate):
    t = torch.arange(x.shape[-1]) / samplerate
    window = torch.hann_window(x.shape[-1])
    c = (x * window * torch.cos(2 * math.pi * freq * t)).sum(-1)
    s = (x * window * torch.sin(2 * math.pi * freq * t)).sum(-1)
    return 20 * math.log10((2 * torch.hypot(c, s) / window.sum()).max().item())


def make_music(samplerate, seconds, generator):
    t = torch.arange(int(samplerate * seconds)) / samplerate
    chord = sum(torch.sin(2 * math.pi * f * t) for f in (220.0, 277.18, 329.63))
    noise = 0.05 * torch.randn(2, len(t), generator=generator)
    return chord * torch.tensor([[0.3], [0.25]]) + noise


def main():
    generator = torch.Generator().manual_seed(257)
    samplerate = 22050
    master = MasteringChain(samplerate)(make_music(samplerate, 0.8, generator))
    amplitude = 1 / 2 ** 15
    out = SoundFile(samplerate, "PCM_16")
    out.write(master + triangular_noise(master.shape, amplitude, generator))
    back = out.read()
    silence = SoundFile(samplerate, "PCM_16")
    silence.write(triangular_noise((4000,), amplitude, generator))
    print(f"level {level_db(master):.1f} in the file {level_db(back):.1f}"
          f" tone {tone_db(master, 220.0, samplerate):.1f} in the file {tone_db(back, 220.0, samplerate):.1f}")
    print("values of the dither", silence.frames.unique().tolist(), "peak", int(out.frames.abs().max()))


if __name__ == "__main__":
    main()
