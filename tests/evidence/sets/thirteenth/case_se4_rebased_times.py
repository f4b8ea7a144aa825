"""
title: observation times are moved to their own origin before they become float32
expect: clean
thread: https://github.com/CMBSciPol/furax/pull/145
measured: sample rate 200.03 Hz, plate 1.999 Hz, Q 0.765, U -0.236, noise 0.0071

Expectation, written first: the suspect is the float32 cast of POSIX seconds, but the first time is subtracted in
float64 before; what is left is below a thousand and has steps of some microseconds. Sample rate, rotation frequency
and noise level are those of a wide run.
"""
import math

import torch


class Observation:
    """a detector sampled at about 200 Hz behind a plate that turns twice a second"""

    def __init__(self, seconds, gen, start=1_718_000_000.25):
        n = int(seconds * 200)
        self.times = start + torch.arange(n, dtype=torch.float64) / 200.03
        self.angle = (2 * math.pi * 2.0 * (self.times - start)) % (2 * math.pi)
        white = torch.randn(n, generator=gen, dtype=torch.float64)
        self.signal = 0.8 * torch.cos(4 * self.angle + 0.3) + 0.1 * white


class ObservationReader:
    def __init__(self, double_precision=False):
        self.dtype = torch.float64 if double_precision else torch.float32

    def read(self, observation):
        elapsed = observation.times - observation.times[0]
        return {
            "timestamps": elapsed.to(self.dtype),
            "hwp_angle": observation.angle.to(self.dtype),
            "signal": observation.signal.to(self.dtype),
        }


class NoiseModel:
    def __init__(self, fields):
        t, angle = fields["timestamps"], fields["hwp_angle"]
        span = t.max() - t.min()
        self.sample_rate = (len(t) - 1) / span
        turns = (angle.diff() < -math.pi).sum()
        self.hwp_frequency = turns / span
        self.interval_jitter = t.diff().std()

    def level(self, residual):
        return residual.std() / self.sample_rate.sqrt()


def demodulate(fields):
    c, s = torch.cos(4 * fields["hwp_angle"]), torch.sin(4 * fields["hwp_angle"])
    d = fields["signal"]
    q, u = 2 * (d * c).mean(), 2 * (d * s).mean()
    return q, u, d - q * c - u * s


def main():
    observation = Observation(600, torch.Generator().manual_seed(42))
    fields = ObservationReader().read(observation)
    noise = NoiseModel(fields)
    q, u, residual = demodulate(fields)
    print(
        f"sample rate {noise.sample_rate:.2f} Hz, plate {noise.hwp_frequency:.3f} Hz, "
        f"Q {q:.3f}, U {u:.3f}, noise {noise.level(residual):.4f}"
    )


main()
