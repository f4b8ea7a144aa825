"""
title: mixing loud stereo down to mono before a level meter
expect: silent:overflow|precision-loss|downcast
thread: https://github.com/corrscope/corrscope/issues/63
measured: level -11.52 dBFS, peak 0.500, clicks 1414
widened: level -7.75 dBFS, peak 0.899, clicks 0
fix_at: 37

Expectation, written first: the channels are int16 and are added before they are
halved, so loud passages wrap and the meter shows a wrong level.
BORN is the int16 of the decoded block that the mixer works in; int32 there mends it.
"""
import math

import torch


class Decoder:
    """Gives blocks of interleaved stereo samples."""

    def __init__(self, seconds, rate=8000, gain=0.9):
        self.rate, self.gain = rate, gain
        self.total = int(seconds * rate)

    def blocks(self, size):
        for start in range(0, self.total, size):
            t = (torch.arange(start, min(start + size, self.total))) / self.rate
            swell = 0.5 + 0.5 * torch.sin(2 * math.pi * 0.4 * t)
            left = self.gain * swell * torch.sin(2 * math.pi * 220 * t)
            right = self.gain * swell * torch.sin(2 * math.pi * 220 * t + 0.1)
            pcm = (torch.stack([left, right]) * 32767).round()
            yield pcm.to(torch.int16)  # BORN


class MonoMixer:
    def __call__(self, block):
        return (block[0] + block[1]) // 2


class LevelMeter:
    def __init__(self):
        self.energy, self.count, self.peak = 0.0, 0, 0.0

    def feed(self, mono):
        x = mono.double() / 32768
        self.energy += x.square().sum().item()
        self.peak = max(self.peak, x.abs().max().item())
        self.count += x.numel()

    def report(self):
        rms = math.sqrt(self.energy / self.count)
        return 20 * math.log10(rms), self.peak


def measure(decoder, mixer):
    meter, jumps, last = LevelMeter(), 0, None
    for block in decoder.blocks(512):
        mono = mixer(block)
        meter.feed(mono)
        jumps += int((mono[1:].long() - mono[:-1].long()).abs().gt(20000).sum())
    return meter.report(), jumps


def main():
    (level, peak), jumps = measure(Decoder(3.0), MonoMixer())
    print("level %.2f dBFS, peak %.3f, clicks %d" % (level, peak, jumps))


if __name__ == "__main__":
    main()
