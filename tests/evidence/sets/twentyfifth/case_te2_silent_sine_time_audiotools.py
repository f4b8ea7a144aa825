"""
title: the sine generator gets overtones after a quarter of an hour
expect: silent:precision-loss|lost-update|downcast
thread: https://github.com/pschatzmann/arduino-audio-tools/issues/138
measured: at 0 s: distortion 0.00 repeated samples 0.00 / at 900 s: distortion 0.94 repeated samples 0.64
widened: at 0 s: distortion 0.00 repeated samples 0.00 / at 900 s: distortion 0.00 repeated samples 0.00; innocent: at 0 s: distortion 0.00 repeated samples 0.00 / at 900 s: distortion 0.94 repeated samples 0.64
suspect: 22 exact (the amplitude is one half)

Expectation, written first: the time in seconds is a float32; at 900 s an ulp is 6e-5 s, more than a sample of 2.3e-5 s,
so neighbouring samples get the same time and the angle 2*pi*f*t is off by radians. The first block is clean. Remedy:
float64 time or a wrapped phase. The amplitude in half is exact.
"""
import math

import torch


class SineWaveGenerator:
    def __init__(self, frequency, sample_rate, amplitude=0.5):
        self.frequency = frequency
        self.sample_rate = sample_rate
        self.amplitude = torch.tensor(amplitude, dtype=torch.float16)
        self.block = 0

    def seek(self, seconds, frames):
        self.block = int(seconds * self.sample_rate / frames)

    def read_bytes(self, frames):
        index = torch.arange(self.block * frames, (self.block + 1) * frames)
        time = (index.double() / self.sample_rate).to(torch.float32)  # BORN
        angle = 2 * math.pi * self.frequency * time  # BORN
        self.block += 1
        return self.amplitude.to(angle.dtype) * torch.sin(angle)


def ideal(frequency, sample_rate, first, frames):
    cycles = torch.arange(first, first + frames).double() * frequency / sample_rate
    return 0.5 * torch.sin(2 * math.pi * (cycles % 1.0))


def thd(signal, reference):
    residual = signal.double() - reference
    return (residual.norm() / reference.norm()).item()


class AudioLoop:
    def __init__(self, generator, frames):
        self.generator, self.frames = generator, frames

    def copy_at(self, seconds):
        self.generator.seek(seconds, self.frames)
        first = self.generator.block * self.frames
        out = self.generator.read_bytes(self.frames)
        ref = ideal(self.generator.frequency, self.generator.sample_rate, first, self.frames)
        return thd(out, ref), (out.diff() == 0).float().mean().item()


def main():
    loop = AudioLoop(SineWaveGenerator(5000.0, 44100), 4096)
    for seconds in (0, 900):
        distortion, repeats = loop.copy_at(seconds)
        print(f"at {seconds} s: distortion {distortion:.2f} repeated samples {repeats:.2f}")


main()
