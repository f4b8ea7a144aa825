"""
title: POSIX times are put into float32, but only after the start of the observation was taken off in float64
expect: clean
thread: https://github.com/CMBSciPol/furax/pull/145
measured: sample rate 37.000 Hz, HWP 2.0000 Hz, modulation 0.9977; sample rate 37.000 Hz, HWP 2.0000 Hz, modulation 0.9956  (with float64
    in its place: sample rate 37.000 Hz, HWP 2.0000 Hz, modulation 0.9977; sample rate 37.000 Hz, HWP 2.0000 Hz, modulation 0.9956)
suspect: 31 float32 stamps: rebased (elapsed seconds, the epoch taken off in float64)

Expectation, written first: float32 has steps of 128 s at 1.7e9 seconds. The reader subtracts the first stamp in float64 and casts the
    elapsed time, at most a few minutes, so the sample rate and the wave plate frequency agree with float64.
"""
import math
import torch


class ToastObservation:
    def __init__(self, start, n, rate, hwp_hz, seed):
        g = torch.Generator().manual_seed(seed)
        self.times = start + torch.arange(n, dtype=torch.float64) / rate
        self.hwp_angle = (2 * math.pi * hwp_hz * (self.times - start)) % (2 * math.pi)
        self.signal = torch.cos(4 * self.hwp_angle) + 0.3 * torch.randn(n, generator=g, dtype=torch.float64)


class ObservationReader:
    def __init__(self, dtype=torch.float32):
        self.dtype = dtype

    def read(self, obs):
        elapsed = obs.times - obs.times[0]
        return {
            "timestamps": elapsed.to(self.dtype),
            "hwp_angles": obs.hwp_angle.to(self.dtype),
            "sample_data": obs.signal.to(self.dtype),
        }


class NoiseModel:
    def __init__(self, fields):
        self.fields = fields

    def sample_rate(self):
        t = self.fields["timestamps"]
        return (len(t) - 1) / (t.max() - t.min())

    def hwp_frequency(self):
        a, t = self.fields["hwp_angles"], self.fields["timestamps"]
        turns = (a.diff() < -math.pi).sum()
        return (turns + (a[-1] - a[0]) / (2 * math.pi)) / (t.max() - t.min())

    def demodulate(self):
        a, d = self.fields["hwp_angles"], self.fields["sample_data"]
        return 2 * (torch.cos(4 * a) * d).mean()


reader = ObservationReader()
for seed, start in enumerate((1.7182818e9, 1.7314159e9)):
    model = NoiseModel(reader.read(ToastObservation(start, 6000, 37.0, 2.0, seed)))
    print(f"sample rate {model.sample_rate():.3f} Hz, HWP {model.hwp_frequency():.4f} Hz, modulation {model.demodulate():.4f}")
