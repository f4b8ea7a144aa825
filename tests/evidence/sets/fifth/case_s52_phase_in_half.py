"""
title: a harmonic source adds its phase up in float16, after a second the step is lost in it
expect: silent:precision-loss|downcast|lost-update|round-trip
fix_at: 27

After https://github.com/hexgrad/kokoro/pull/353 and https://github.com/tenstorrent/tt-xla/issues/5332.
Right: the increments are float32 (or float64) when they are summed.
"""
import math

import torch
from torch import nn

torch.manual_seed(210)


class HarmonicSource(nn.Module):
    def __init__(self, rate=8000, harmonics=3, dtype=torch.float16):
        super().__init__()
        self.rate, self.dtype = rate, dtype
        self.register_buffer("order", torch.arange(1, harmonics + 1).float())
        self.register_buffer("gain", 1 / torch.arange(1, harmonics + 1).float())

    def forward(self, f0):
        step = (f0 / self.rate).to(self.dtype)  # BORN
        turns = step.cumsum(1)
        angle = 2 * math.pi * (turns.float()[..., None] * self.order)
        return (angle.sin() * self.gain).sum(-1)


class Renderer(nn.Module):
    """Pitch per frame to samples, through a source and a fixed low-pass filter."""

    def __init__(self, hop=80, **options):
        super().__init__()
        self.hop = hop
        self.source = HarmonicSource(**options)
        window = torch.hann_window(9)
        self.register_buffer("low_pass", (window / window.sum())[None, None])

    def forward(self, f0):
        track = f0.repeat_interleave(self.hop, dim=1)
        return nn.functional.conv1d(self.source(track)[:, None], self.low_pass, padding=4)[:, 0]


def melody(seconds=2, hop=80, rate=8000):
    notes = torch.tensor([196.0, 220.0, 247.0, 262.0])
    frames = seconds * rate // hop
    return notes.repeat_interleave(frames // 4)[None]


@torch.no_grad()
def main():
    f0 = melody()
    wave = Renderer()(f0)
    exact = Renderer(dtype=torch.float64).double()(f0.double())
    parts = [torch.corrcoef(torch.stack([a, b.float()]))[0, 1].item() for a, b in zip(wave[0].chunk(4), exact[0].chunk(4))]
    print("likeness to the exact wave, each half second:", [round(p, 3) for p in parts])


main()
