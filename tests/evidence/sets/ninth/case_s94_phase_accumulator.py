"""
title: harmonic source of a singing synthesiser cumulates its phase in float32, output int16
expect: silent:precision-loss
thread: https://github.com/tenstorrent/tt-metal/issues/55542
measured: last second against the exact tone: -3.0 dB
widened: last second against the exact tone: 91.4 dB

Expectation, written first: after a few minutes the cumulated phase is tens of thousands
of cycles, where float32 steps are a hundredth of a cycle; the tone detunes and gets
noisy. The samples leave as int16, far finer than that; keeping them in float alone does
not help.
"""
import numpy as np

RATE = 24000


class Score:
    def __init__(self, seconds=100, base=440.0):
        t = np.arange(seconds * RATE) / RATE
        self.f0 = base * (1 + 0.01 * np.sin(2 * np.pi * 0.2 * t))


class HarmonicSource:
    def __init__(self, phase_dtype, harmonics=3):
        self.phase_dtype, self.harmonics = phase_dtype, harmonics

    def phase(self, f0):
        inc = (f0 / RATE).astype(self.phase_dtype)
        return np.cumsum(inc, dtype=self.phase_dtype)

    def __call__(self, f0, start, length):
        ph = self.phase(f0)[start : start + length].astype(np.float64)
        wave = sum(np.sin(2 * np.pi * k * ph) / k for k in range(1, self.harmonics + 1))
        return 0.4 * wave


def export(wave, dtype):
    if np.issubdtype(dtype, np.integer):
        return np.round(wave * 32767).astype(dtype)
    return (wave * 32767).astype(dtype)


def snr(got, want):
    err = got.astype(np.float64) - want
    return 10 * np.log10((want ** 2).mean() / (err ** 2).mean())


def main():
    score = Score()
    start, length = len(score.f0) - RATE, RATE
    source = HarmonicSource(np.float32)  # BORN
    clip = export(source(score.f0, start, length), dtype=np.int16)
    exact = np.cumsum(score.f0.astype(np.longdouble) / RATE)[start:]
    want = 0.4 * 32767 * sum(np.sin(2 * np.pi * k * exact) / k for k in (1, 2, 3)).astype(np.float64)
    print(f"last second against the exact tone: {snr(clip, want):.1f} dB")


main()
