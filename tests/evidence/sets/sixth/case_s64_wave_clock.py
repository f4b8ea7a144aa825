"""
title: a hum is measured by its phase, the clock is float16; the eight-bit samples lose nothing in bfloat16
expect: silent:precision-loss|downcast|round-trip
"""
import math

import torch

torch.manual_seed(901)


class Recorder:
    """Eight-bit samples at 4 kHz, two seconds."""

    def __init__(self, rate=4000, seconds=2):
        self.rate, self.count = rate, rate * seconds

    def record(self, pitch):
        t = torch.arange(self.count, dtype=torch.float64) / self.rate
        wave = 90 * torch.sin(2 * math.pi * pitch * t) + 4 * torch.randn(self.count)
        return wave.round().clamp(-127, 127).float()


def loudness(recorder, samples, pitch):
    """The strength of one pitch, by comparing with a sine and a cosine."""
    samples = samples.bfloat16().float()
    t = torch.arange(recorder.count) / recorder.rate
    t = t.half().float()  # BORN
    angle = 2 * math.pi * pitch * t
    a, b = (samples * angle.cos()).mean(), (samples * angle.sin()).mean()
    return 2 * (a.square() + b.square()).sqrt()


recorder = Recorder()
found = [loudness(recorder, recorder.record(pitch), pitch).item() for pitch in (440.0, 880.0, 1320.0)]
print("loudness of 90:", [round(v, 1) for v in found])
