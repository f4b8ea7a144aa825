"""
title: per-feature normalisation of a quiet mel band takes its variance from two large float32 means
expect: silent:precision-loss
thread: https://github.com/k2-fsa/sherpa-onnx/pull/3857
measured: largest normalised value 4988.0, features coded as zero 100.0%
widened: largest normalised value 19.9, features coded as zero 10.6%

Expectation, written first: a band at the log floor has a mean square of 132.5 and a variance of 6e-6, less than
float32 resolves there; the difference comes out as zero and the band's one live frame is blown up by 1e5. The
innocent suspect is the float16 hand-over to the encoder: the values fit into it either way.
"""
import math

import torch

FLOOR = math.log(1e-5)


class LogMel:
    """stands for the front end: one band lies at the log floor with one frame just above it"""

    def __init__(self, bands, quiet):
        self.bands, self.quiet = bands, quiet

    def __call__(self, frames, gen):
        features = -6 + 2.5 * torch.randn(frames, self.bands, generator=gen, dtype=torch.float64)
        features[:, self.quiet] = FLOOR
        features[frames // 3, self.quiet] = FLOOR + 0.05
        return features


class RunningMoments:
    def __init__(self, bands, dtype=torch.float32):  # BORN
        self.dtype = dtype
        self.count = 0
        self.total = torch.zeros(bands, dtype=dtype)
        self.square = torch.zeros(bands, dtype=dtype)

    def update(self, block):
        block = block.to(self.dtype)  # BORN
        self.count += len(block)
        self.total += block.sum(0)
        self.square += block.square().sum(0)

    def mean_and_inverse_std(self, eps=1e-5):
        mean = self.total / self.count
        variance = (self.square / self.count - mean.square()).clamp(min=0)
        return mean, 1 / (variance.sqrt() + eps)


class NormalizePerFeature:
    def __init__(self, bands, block=50):
        self.bands, self.block = bands, block

    def __call__(self, features):
        moments = RunningMoments(self.bands)
        for part in features.split(self.block):
            moments.update(part)
        mean, inverse = moments.mean_and_inverse_std()
        return (features - mean) * inverse


class Encoder:
    """a dynamically quantised layer: one scale for the whole utterance"""

    def __call__(self, x):
        x = x.half().float()
        scale = x.abs().max() / 127
        return (x / scale).round() * scale, x


def main():
    gen = torch.Generator().manual_seed(9)
    features = LogMel(bands=24, quiet=3)(400, gen)
    coded, fed = Encoder()(NormalizePerFeature(24)(features))
    lost = ((coded == 0) & (fed != 0)).double().mean().item()
    print(f"largest normalised value {fed.abs().max():.1f}, features coded as zero {100 * lost:.1f}%")


main()
