"""
title: harmonic source of a half-precision vocoder turns to noise after a few seconds because the phase is accumulated in fp16
expect: silent:precision-loss|downcast
thread: https://github.com/hexgrad/kokoro/pull/353
measured: harmonic energy in the last second: 0.004
widened: harmonic energy in the last second: 0.998 ; innocent: harmonic energy in the last second: 0.004
suspect: 52 storage (the finished waveform is handed over in bf16, an error of 0.2 per cent of each sample, no frequency moves)

Expectation, written first: the sine generator takes its per-sample phase increments in the dtype of the source module (fp16) and
accumulates them there; after some hundred cycles the fp16 grid of the running phase is coarser than an increment, so the pitch of the
late part is no longer f0. Storing the waveform in bf16 looks worse, but only adds a tiny amplitude error.
"""
import math

import torch
import torch.nn as nn


class SineGen(nn.Module):
    def __init__(self, samp_rate, harmonic_num=0, sine_amp=0.1, noise_std=0.003, dtype=torch.float32):
        super().__init__()
        self.sampling_rate = samp_rate
        self.dim = harmonic_num + 1
        self.sine_amp = sine_amp
        self.noise_std = noise_std
        self.dtype = dtype

    def _f02sine(self, f0_values):
        rad_values = (f0_values / self.sampling_rate) % 1
        rad_values = rad_values.to(self.dtype)  # BORN
        phase = torch.cumsum(rad_values, dim=1)  # BORN
        return torch.sin(phase.float() * 2 * math.pi)

    def forward(self, f0):
        harmonics = torch.arange(1, self.dim + 1, dtype=torch.float32)
        fn = f0.unsqueeze(-1) * harmonics
        sine_waves = self._f02sine(fn) * self.sine_amp
        uv = (f0 > 10).float().unsqueeze(-1)
        noise = self.noise_std * torch.randn_like(sine_waves)
        return sine_waves * uv + noise


class SourceModuleHnNSF(nn.Module):
    def __init__(self, sampling_rate, harmonic_num, dtype):
        super().__init__()
        self.l_sin_gen = SineGen(sampling_rate, harmonic_num, dtype=dtype)
        self.register_buffer("merge", torch.full((harmonic_num + 1,), 1.0 / (harmonic_num + 1)))

    def forward(self, f0):
        sine_wavs = self.l_sin_gen(f0)
        wave = torch.tanh(sine_wavs @ self.merge)
        return wave.to(torch.bfloat16)


def harmonic_ratio(wave, f0_hz, sr, width=6.0):
    segment = wave.float()[-sr:]
    spectrum = torch.fft.rfft(segment * torch.hann_window(segment.numel())).abs() ** 2
    freqs = torch.fft.rfftfreq(segment.numel(), 1.0 / sr)
    near = torch.zeros_like(freqs, dtype=torch.bool)
    for k in range(1, 5):
        near |= (freqs - k * f0_hz).abs() < width
    return (spectrum[near].sum() / spectrum.sum()).item()


def main():
    torch.manual_seed(0)
    sr, f0_hz, seconds = 24000, 203.0, 4
    f0 = torch.full((1, sr * seconds), f0_hz)
    source = SourceModuleHnNSF(sr, harmonic_num=3, dtype=torch.float16)  # BORN
    wave = source(f0)[0]
    print(f"harmonic energy in the last second: {harmonic_ratio(wave, f0_hz, sr):.3f}")


if __name__ == "__main__":
    main()
