"""
title: amplitude and phase are extracted with a complex64 FFT instead of complex128, to the same values
expect: clean
thread: https://github.com/waltsims/k-wave-python/issues/348
measured: frequency bin 1000000 Hz | largest amplitude error 0.030% | sound speed from the phase 1500.0 m/s ; in full float32/without the suspect: frequency bin 1000000 Hz | largest amplitude error 0.030% | sound speed from the phase 1500.0 m/s
suspect: line 34, single precision is six digits, the recording has three

Expectation, written first: the recorded pressure is float32 and the spectrum is taken in complex64 without the automatic raise to double.
For a few thousand samples the transform is good to six digits, the noise of the recording is far larger. Amplitude and phase at the
source frequency are right, the memory is halved.
"""
import math

import torch


def get_win(n, kind="Hanning", dtype=torch.float32):
    i = torch.arange(n, dtype=torch.float64)
    if kind == "Hanning":
        w = 0.5 - 0.5 * torch.cos(2 * math.pi * i / (n - 1))
    else:
        w = torch.ones(n, dtype=torch.float64)
    gain = float(w.mean())
    return w.to(dtype), gain


def freq_shift(n, fs):
    return torch.fft.rfftfreq(n, d=1 / fs)


def extract_amp_phase(data, fs, source_freq, padding=3, window="Hanning"):
    n = data.shape[-1]
    win, gain = get_win(n, window, data.dtype)
    spectrum = torch.fft.rfft((data * win).to(torch.float32), n=padding * n)
    freq = freq_shift(padding * n, fs)
    k = int((freq - source_freq).abs().argmin())
    amp = spectrum[..., k].abs() * 2 / (n * gain)
    phase = spectrum[..., k].angle()
    return amp, phase, float(freq[k])


class SensorLine:
    def __init__(self, n_points, spacing, c=1500.0):
        self.x = torch.arange(n_points, dtype=torch.float64) * spacing + 0.01
        self.c = c

    def record(self, fs, samples, freq, pressure, seed):
        g = torch.Generator().manual_seed(seed)
        t = torch.arange(samples, dtype=torch.float64) / fs
        amp = pressure * torch.exp(-8.0 * self.x) / (1 + 10 * self.x)
        arg = 2 * math.pi * freq * (t[None] - self.x[:, None] / self.c)
        p = amp[:, None] * torch.cos(arg)
        noise = 0.002 * pressure * torch.randn(p.shape, generator=g, dtype=torch.float64)
        return (p + noise).to(torch.float32), amp


def phase_speed(phase, x, freq):
    step = torch.diff(phase.double())
    step = torch.remainder(step + math.pi, 2 * math.pi) - math.pi
    slope = step.mean() / torch.diff(x).mean()
    return float(-2 * math.pi * freq / slope)


fs, freq = 20e6, 1e6
sensors = SensorLine(40, 1.5e-4)
data, true_amp = sensors.record(fs, 2000, freq, 1e5, seed=0)
amp, phase, f = extract_amp_phase(data, fs, freq)
print("frequency bin %.0f Hz" % f)
print("largest amplitude error %.3f%%" % (100 * ((amp - true_amp) / true_amp).abs().max()))
print("sound speed from the phase %.1f m/s" % phase_speed(phase, sensors.x, freq))
