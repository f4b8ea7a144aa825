"""
title: Augmented float samples are clamped and written as int16
expect: clean
thread: https://github.com/iver56/audiomentations/issues/41
measured: 000.wav -15.3 dB 440 Hz peak 0.28 / 001.wav -16.7 dB 440 Hz peak 0.24 / 002.wav -16.8 dB 440 Hz peak 0.24
suspect: 29 meant (16 bit PCM file format, clamped before, error below 1/32767)

Expectation, written first: The demo writes its output as 16 bit PCM. The samples are clamped to [-1, 1] before they are
multiplied with 32767, so nothing wraps; the step of 3e-5 is that of the format and the level and pitch printed are unchanged.
"""
import io
import wave

import numpy as np
import torch

SAMPLE_RATE = 8000


def clip_extreme_values(y):
    return torch.clamp(y, -1.0, 1.0)


def convert_float_samples_to_int16(y, clamp_values=True):
    if not y.is_floating_point():
        raise ValueError("input samples not floating-point")
    if clamp_values:
        y = clip_extreme_values(y)
    return (y * torch.iinfo(torch.int16).max).to(torch.int16)


class Gain:
    def __init__(self, min_gain_in_db, max_gain_in_db):
        self.low, self.high = min_gain_in_db, max_gain_in_db

    def __call__(self, samples, generator):
        db = self.low + (self.high - self.low) * torch.rand((), generator=generator)
        return samples * 10 ** (db / 20)


class AddGaussianSNR:
    def __init__(self, snr_in_db):
        self.snr_in_db = snr_in_db

    def __call__(self, samples, generator):
        rms = samples.square().mean().sqrt()
        noise = torch.randn(samples.shape, generator=generator)
        return samples + noise * rms * 10 ** (-self.snr_in_db / 20)


class Compose:
    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, samples, generator):
        for transform in self.transforms:
            samples = transform(samples, generator)
        return samples


def write_wav(samples):
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as f:
        f.setnchannels(1)
        f.setsampwidth(2)
        f.setframerate(SAMPLE_RATE)
        f.writeframes(convert_float_samples_to_int16(samples).numpy().tobytes())
    return buffer.getvalue()


def read_wav(data):
    with wave.open(io.BytesIO(data), "rb") as f:
        raw = np.frombuffer(f.readframes(f.getnframes()), dtype=np.int16)
    return torch.from_numpy(raw.astype(np.float32) / 32767.0)


def describe(samples):
    level = 20 * torch.log10(samples.square().mean().sqrt()).item()
    spectrum = torch.fft.rfft(samples).abs()
    pitch = spectrum.argmax().item() * SAMPLE_RATE / len(samples)
    return f"{level:.1f} dB {pitch:.0f} Hz peak {samples.abs().max().item():.2f}"


def main():
    generator = torch.Generator().manual_seed(41)
    t = torch.arange(SAMPLE_RATE) / SAMPLE_RATE
    samples = 0.3 * torch.sin(2 * torch.pi * 440 * t) + 0.1 * torch.sin(2 * torch.pi * 880 * t)
    augmenter = Compose([AddGaussianSNR(30.0), Gain(-6.0, 3.0)])
    for i in range(3):
        augmented = augmenter(samples, generator)
        written = read_wav(write_wav(augmented))
        assert len(written) == len(augmented)
        print(f"{i:03d}.wav", describe(written))


if __name__ == "__main__":
    main()
