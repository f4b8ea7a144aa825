"""
title: writing speech to sixteen-bit samples through a limiter
expect: clean
thread: https://github.com/claritychallenge/clarity/pull/312

Expectation, written first: the cast to int16 could wrap loud samples, but they are
limited to the range of int16 before, and the mixing is done in float32. The level differs from
a float copy only by the rounding of a sample.
"""
import math

import torch


class Limiter:
    def __init__(self, low=-32768, high=32767):
        self.low, self.high = low, high
        self.hits = 0

    def __call__(self, scaled):
        out = scaled.clamp(self.low, self.high)
        self.hits += int((out != scaled).sum())
        return out


class PcmFile:
    def __init__(self, limiter):
        self.limiter, self.blocks = limiter, []

    def write(self, block):
        scaled = (block * 32768).round()
        self.blocks.append(self.limiter(scaled).to(torch.int16))

    def read(self):
        return torch.cat(self.blocks).float() / 32768


class Room:
    """Two talkers who are now and then louder than full scale together."""

    def __init__(self, rate=8000):
        self.rate = rate

    def blocks(self, seconds, size=800):
        t = torch.arange(int(seconds * self.rate)) / self.rate
        one = 0.6 * torch.sin(2 * math.pi * 150 * t)
        two = 0.55 * torch.sin(2 * math.pi * 210 * t)
        yield from (one + two).split(size)


def level(x):
    return 10 * math.log10(x.double().square().mean().item())


def main():
    limiter = Limiter()
    pcm, plain = PcmFile(limiter), []
    for block in Room().blocks(2.0):
        pcm.write(block)
        plain.append(block.clamp(-1, 1))
    back, plain = pcm.read(), torch.cat(plain)
    print("level %.2f dB, float copy %.2f dB, limited samples %d, flips %d"
          % (level(back), level(plain), limiter.hits, int((back * plain < -1e-3).sum())))


if __name__ == "__main__":
    main()
