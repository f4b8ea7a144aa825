"""
title: loud stereo recordings are mixed down to mono in the 16-bit samples they were read in
expect: silent:overflow|wraparound|integer-overflow|downcast
thread: https://github.com/corrscope/corrscope/issues/63
measured: clicks 1689, clarity of the pitch 0.88, peak 16380
widened: clicks 0, clarity of the pitch 0.96, peak 26800

Expectation, written first: left plus right passes 32767 at every loud peak and wraps to the other sign, so the mono
wave is full of clicks and the pitch tracker loses the tone. The level meter
that works in float16 only decides whether a block is silence, far from its threshold.
"""
import math

import torch


class WavReader:
    """a struck string at full scale on both channels"""

    def __init__(self, rate, hz, seconds, level, seed):
        gen = torch.Generator().manual_seed(seed)
        t = torch.arange(int(rate * seconds), dtype=torch.float64) / rate
        tone = sum(torch.sin(2 * math.pi * hz * k * t) / k for k in (1, 2, 3)) / 1.6
        noise = 0.01 * torch.randn(2, len(t), generator=gen, dtype=torch.float64)
        stereo = torch.stack([tone, 0.97 * tone]) + noise
        self.rate = rate
        self.samples = (stereo * level * 32767).round().clamp(-32768, 32767).to(torch.int16)  # BORN

    def blocks(self, size):
        for start in range(0, self.samples.shape[1] - size + 1, size):
            yield self.samples[:, start:start + size]


class Mixer:
    def __init__(self):
        self.gain, self.floor = 0.5, 200.0

    def silent(self, block):
        return (block.to(torch.float16).abs().mean() < self.floor).item()

    def mono(self, block):
        left, right = block
        both = left + right  # BORN
        return both.double() * self.gain


class PitchTracker:
    def __init__(self, rate, low=60, high=900):
        self.rate, self.lags = rate, (int(rate / high), int(rate / low))

    def __call__(self, wave):
        wave = wave - wave.mean()
        n = 2 * len(wave)
        power = torch.fft.rfft(wave, n).abs().square()
        auto = torch.fft.irfft(power, n)[: self.lags[1]]
        lag = self.lags[0] + auto[self.lags[0]:].argmax().item()
        return self.rate / lag, (auto[lag] / auto[0]).item()


def clicks(wave):
    """jumps between neighbours that no band-limited tone can make"""
    return int((wave.diff().abs() > 16000).sum())


def main():
    reader = WavReader(16000, 220.0, 2.0, level=0.9, seed=3)
    mixer, tracker = Mixer(), PitchTracker(reader.rate)
    count, clarity = 0, []
    for block in reader.blocks(2048):
        if mixer.silent(block):
            continue
        wave = mixer.mono(block)
        count += clicks(wave)
        clarity.append(tracker(wave)[1])
    mean = sum(clarity) / len(clarity)
    peak = max(mixer.mono(b).abs().max().item() for b in reader.blocks(2048))
    print(f"clicks {count}, clarity of the pitch {mean:.2f}, peak {peak:.0f}")


main()
