"""
title: mel spectrogram of quiet recordings is -inf everywhere
expect: silent:underflow|downcast
thread: https://github.com/kitzeslab/opensoundscape/issues/794
measured: -inf share 1.00 median level -inf dB
widened: -inf share 0.00 median level -96 dB; innocent: -inf share 1.00 median level -inf dB
suspect: 55 tolerant (decibels between -150 and 0 lose less than 0.1 in half)

Expectation, written first: the linear power of a quiet recording is about 1e-9 and is stored in half before the mel
bank and the decibels; it underflows to zero and its log is -inf. Remedy: keep the linear power in float32. The half
cast of the finished decibels is harmless.
"""
import torch


def hz_to_mel(f):
    return 2595.0 * torch.log10(1.0 + f / 700.0)


def mel_to_hz(m):
    return 700.0 * (10.0 ** (m / 2595.0) - 1.0)


def mel_filterbank(n_mels, n_fft, sample_rate):
    freqs = torch.linspace(0, sample_rate / 2, n_fft // 2 + 1)
    edges = mel_to_hz(torch.linspace(0.0, hz_to_mel(torch.tensor(sample_rate / 2)).item(), n_mels + 2))
    lower, centre, upper = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    rising = (freqs - lower) / (centre - lower)
    falling = (upper - freqs) / (upper - centre)
    return torch.minimum(rising, falling).clamp(min=0)


class Spectrogram:
    def __init__(self, values, sample_rate):
        self.values = values
        self.sample_rate = sample_rate

    @classmethod
    def from_audio(cls, samples, sample_rate, window_samples=256, dtype=torch.float16):  # BORN
        window = torch.hann_window(window_samples)
        spec = torch.stft(samples, window_samples, window=window, return_complex=True)
        power = spec.abs() ** 2 / window_samples ** 2
        return cls(power.to(dtype), sample_rate)  # BORN


class MelSpectrogram(Spectrogram):
    @classmethod
    def from_audio(cls, samples, sample_rate, n_mels=24, dB_scale=True, storage=torch.float16):
        linear = Spectrogram.from_audio(samples, sample_rate)  # BORN
        n_fft = (linear.values.shape[0] - 1) * 2
        bank = mel_filterbank(n_mels, n_fft, sample_rate)
        mel = bank @ linear.values.float()
        if dB_scale:
            mel = 10 * torch.log10(mel)
        mel = mel.to(storage)
        return cls(mel, sample_rate)


def field_recording(seconds, sample_rate, generator):
    t = torch.arange(seconds * sample_rate) / sample_rate
    hiss = 2e-4 * torch.randn(t.shape[0], generator=generator)
    call = 6e-4 * torch.sin(2 * torch.pi * 2400 * t) * (t % 0.5 < 0.2)
    return hiss + call


def main():
    generator = torch.Generator().manual_seed(794)
    audio = field_recording(2, 8000, generator)
    mel = MelSpectrogram.from_audio(audio, 8000).values.float()
    lost = torch.isinf(mel).float().mean().item()
    print(f"-inf share {lost:.2f} median level {mel.median().item():.0f} dB")


main()
