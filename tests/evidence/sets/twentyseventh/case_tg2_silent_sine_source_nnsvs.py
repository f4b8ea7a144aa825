"""
title: harmonic sine source of NSF becomes noisy towards the end of a long song
expect: silent:precision-loss|downcast
thread: https://github.com/nnsvs/nnsvs/pull/10
measured: 8th harmonic: SNR first second 60 dB, last second 17 dB
widened: 8th harmonic: SNR first second 60 dB, last second 60 dB; innocent: 8th harmonic: SNR first second 60 dB, last second 17 dB
suspect: 27 exact (zeros and ones)

Expectation, written first: the phase is the running sum of f0 / sampling_rate * 2 pi in float32 and is never wrapped.
After five minutes the eighth harmonic stands at several million radians, where float32 steps by half a radian; the sine
there is noise although the first second is clean. Remedy: wrap, or sum in double. The voicing mask in half is exact.
"""
import math

import torch


class SineGen(torch.nn.Module):
    def __init__(self, samp_rate, harmonic_num=7, sine_amp=0.1, voiced_threshold=0):
        super().__init__()
        self.sine_amp = sine_amp
        self.sampling_rate = samp_rate
        self.dim = harmonic_num + 1
        self.voiced_threshold = voiced_threshold

    def _f02uv(self, f0):
        uv = (f0 > self.voiced_threshold).half()
        return uv

    def _f02sine(self, f0_values):
        rad_values = f0_values / self.sampling_rate
        phase = torch.cumsum(rad_values * 2 * math.pi, dim=1)  # BORN
        return torch.sin(phase)  # BORN

    def forward(self, f0):
        factors = torch.arange(1, self.dim + 1, dtype=f0.dtype)
        f0_buf = f0 * factors
        sine_waves = self._f02sine(f0_buf) * self.sine_amp
        return sine_waves * self._f02uv(f0)


def sung_f0(seconds, samp_rate, pitch):
    f0 = torch.full((1, seconds * samp_rate, 1), pitch)
    f0[:, : samp_rate // 2] = 0.0
    return f0


def snr_of_harmonic(wave, pitch, harmonic, samp_rate):
    """power in the bin of the harmonic against the power everywhere else"""
    n = samp_rate
    window = torch.hann_window(n, periodic=True, dtype=torch.float64)
    spectrum = torch.fft.rfft(wave.double() * window).abs() ** 2
    centre = round(pitch * harmonic * n / samp_rate)
    signal = spectrum[centre - 3:centre + 4].sum()
    return (10 * torch.log10(signal / (spectrum.sum() - signal))).item()


@torch.no_grad()
def main():
    samp_rate, seconds, pitch = 8000, 300, 440.0
    source = SineGen(samp_rate)
    sines = source(sung_f0(seconds, samp_rate, pitch))
    first = sines[0, samp_rate:2 * samp_rate, 7]
    last = sines[0, -samp_rate:, 7]
    early, late = (snr_of_harmonic(w, pitch, 8, samp_rate) for w in (first, last))
    print(f"8th harmonic: SNR first second {min(early, 60.0):.0f} dB, last second {min(late, 60.0):.0f} dB")


main()
