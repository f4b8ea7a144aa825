"""
title: The oscillator bank sums its phase in float64 and goes back to float32 for the sine
expect: clean
thread: https://github.com/pytorch/audio/pull/3083
measured: f0 110 rms 0.450 peak bin 110 ['0.47', '-0.70', '-0.03', '0.14'] / f0 220 rms 0.450 peak bin 220 ['-0.14', '-0.67', '0.60', '0.04'] / f0 330 rms 0.450 peak bin 330 ['-0.46', '-0.05', '0.29', '0.12']
suspect: 27 sufficient

Expectation, written first: The phase is a running sum over one second of samples and is made in float64, then
cast to float32 before the sine. The phase reaches a few thousand radians, where float32 still resolves
better than a thousandth; the waveform's level and its samples agree with float64 to two decimals.
"""
import math

import torch


def oscillator_bank(frequencies, amplitudes, sample_rate, reduction="sum", dtype=torch.float64):
    if frequencies.shape != amplitudes.shape:
        raise ValueError("frequencies and amplitudes must have the same shape")
    invalid = torch.abs(frequencies) >= sample_rate / 2
    if torch.any(invalid):
        amplitudes = torch.where(invalid, 0.0, amplitudes)
    pi2 = 2.0 * math.pi
    freqs = frequencies * pi2 / sample_rate % pi2
    phases = torch.cumsum(freqs, dim=-2, dtype=dtype)
    if dtype is not None and freqs.dtype != dtype:
        phases = phases.to(freqs.dtype)
    waveform = amplitudes * torch.sin(phases)
    if reduction == "sum":
        return waveform.sum(-1)
    if reduction == "mean":
        return waveform.mean(-1)
    return waveform


def extend_pitch(base, pattern):
    mult = torch.linspace(1.0, float(pattern), pattern, dtype=base.dtype)
    return base @ mult.unsqueeze(0)


def adsr_envelope(num_frames, attack, decay, sustain, release):
    n_a, n_d, n_r = (int(num_frames * v) for v in (attack, decay, release))
    out = torch.full((num_frames,), sustain)
    out[:n_a] = torch.linspace(0.0, 1.0, n_a)
    out[n_a:n_a + n_d] = torch.linspace(1.0, sustain, n_d)
    out[-n_r:] = torch.linspace(sustain, 0.0, n_r)
    return out


class Synth:
    def __init__(self, sample_rate, num_partials):
        self.sample_rate = sample_rate
        self.num_partials = num_partials

    def note(self, f0, duration, vibrato=0.0):
        frames = int(self.sample_rate * duration)
        t = torch.arange(frames) / self.sample_rate
        base = f0 * (1.0 + vibrato * torch.sin(2 * math.pi * 5.0 * t))
        freq = extend_pitch(base.unsqueeze(-1), self.num_partials)
        env = adsr_envelope(frames, 0.1, 0.2, 0.6, 0.3)
        amp = env.unsqueeze(-1) / torch.arange(1.0, self.num_partials + 1) ** 1.5
        return oscillator_bank(freq, amp, self.sample_rate)


def main():
    synth = Synth(8000, 4)
    for f0, vibrato in ((110.0, 0.0), (220.0, 0.01), (329.63, 0.005)):
        wave = synth.note(f0, 1.0, vibrato)
        spec = torch.fft.rfft(wave * torch.hann_window(len(wave))).abs()
        print(f"f0 {f0:.0f} rms {wave.square().mean().sqrt():.3f} peak bin {spec.argmax().item()}",
              [f"{v:.2f}" for v in wave[3001::1500].tolist()])


if __name__ == "__main__":
    main()
