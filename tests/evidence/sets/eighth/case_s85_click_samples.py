"""
title: writing normalised speech to sixteen-bit samples
expect: silent:overflow|downcast|round-trip
thread: https://github.com/microsoft/VibeVoice/pull/281
measured: samples with the wrong sign 39, highest sample 1.0000
widened: samples with the wrong sign 0, highest sample 1.0000
fix_at: 44

Expectation, written first: a sample of exactly +1.0 becomes 32768, which int16 cannot
hold and turns to -32768: a click at every peak. BORN is the cast to int16 without limits; a
wider type (or a limit before it) is right. The gains, float32 by default, are exact enough.
"""
import math

import torch


class Speaker:
    def __init__(self, rate=8000):
        self.rate = rate

    def say(self, seconds, pitch):
        t = torch.arange(int(seconds * self.rate)) / self.rate
        envelope = torch.sin(math.pi * t / seconds)
        return envelope * torch.sin(2 * math.pi * pitch * t).sign() * 0.8


class Normaliser:
    def __init__(self, gains):
        self.gains = gains

    def __call__(self, chunks):
        level = torch.tensor(self.gains)
        out = [c * g for c, g in zip(chunks, level)]
        peak = max(c.max().item() for c in out)
        return [c / peak for c in out]


class PcmWriter:
    def __init__(self):
        self.chunks = []

    def write(self, chunk):
        scaled = (chunk * 32768.0).round()
        self.chunks.append(scaled.to(torch.int16))  # BORN

    def samples(self):
        return torch.cat(self.chunks)


def clicks(samples, original):
    x = samples.double() / 32768
    return int((x - original).abs().gt(0.5).sum()), x.max().item()


def main():
    speaker = Speaker()
    chunks = [speaker.say(0.25, pitch) for pitch in (90, 110, 130)]
    chunks = Normaliser([0.7, 1.0, 0.9])(chunks)
    writer = PcmWriter()
    for chunk in chunks:
        writer.write(chunk)
    bad, top = clicks(writer.samples(), torch.cat(chunks).double())
    print("samples with the wrong sign %d, highest sample %.4f" % (bad, top))


if __name__ == "__main__":
    main()
