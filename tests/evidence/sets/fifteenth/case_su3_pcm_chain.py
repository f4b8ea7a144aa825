"""
title: an audio node goes from int16 samples to float32 and back, with levels taken after the cast
expect: clean
thread: https://github.com/christian-byrne/audio-separation-nodes-comfyui/issues/16
measured: round trip equal True, soft -13.412 dB, loud -11.297 dB, clipped 0.0000, sum 87890
float64: round trip equal True, soft -13.412 dB, loud -11.297 dB, clipped 0.0000, sum 87890 (the chain in float64)

Expectation, written first: int16 fits into float32 exactly, so a chain that only takes the mean away and fades comes
back rounded to the same samples; the gain is limited before the cast, so nothing wraps. Means are taken of floats.
"""
import math

import torch

REAL = torch.float32
FULL = 32768.0


def tone_burst(rate, seconds, seed):
    gen = torch.Generator().manual_seed(seed)
    t = torch.arange(int(rate * seconds), dtype=torch.float64) / rate
    wave = 0.6 * torch.sin(2 * math.pi * 330 * t) * torch.exp(-2 * t) + 0.02
    wave = wave + 0.05 * torch.randn(len(t), generator=gen, dtype=torch.float64)
    return (wave * (FULL - 1)).round().clamp(-FULL, FULL - 1).to(torch.int16)


class Decode:
    def __call__(self, pcm):
        return pcm.to(REAL) / FULL


class RemoveOffset:
    def __call__(self, wave):
        return wave - wave.mean()


class Fade:
    def __init__(self, samples):
        self.samples = samples

    def __call__(self, wave):
        ramp = torch.linspace(0, 1, self.samples, dtype=torch.float64).to(wave.dtype)
        out = wave.clone()
        out[: self.samples] *= ramp
        out[-self.samples:] *= ramp.flip(0)
        return out


class Gain:
    def __init__(self, db):
        self.factor = 10 ** (db / 20)

    def __call__(self, wave):
        return (wave * self.factor).clamp(-1.0, (FULL - 1) / FULL)


class Encode:
    def __call__(self, wave):
        return (wave * FULL).round().to(torch.int16)


class Chain:
    def __init__(self, *nodes):
        self.nodes = nodes

    def __call__(self, x):
        for node in self.nodes:
            x = node(x)
        return x


def level_db(pcm):
    wave = pcm.to(REAL) / FULL
    return 10 * math.log10(wave.square().mean().item())


if __name__ == "__main__":
    pcm = tone_burst(16000, 1.0, seed=4)
    same = torch.equal(Chain(Decode(), Encode())(pcm), pcm)
    soft = Chain(Decode(), RemoveOffset(), Fade(160), Encode())(pcm)
    loud = Chain(Decode(), RemoveOffset(), Gain(2.0), Encode())(pcm)
    clipped = (loud.int().abs() >= FULL - 1).float().mean().item()
    print(f"round trip equal {same}, soft {level_db(soft):.3f} dB, loud {level_db(loud):.3f} dB, clipped {clipped:.4f}, "
          f"sum {int(soft.to(torch.int64).abs().sum()) // 1000}")
