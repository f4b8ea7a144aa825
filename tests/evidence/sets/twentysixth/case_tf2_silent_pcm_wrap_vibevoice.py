"""
title: loud passages of the recording crackle after the conversion to PCM
expect: silent:overflow
thread: https://github.com/microsoft/VibeVoice/pull/383
measured: 0.0-1.5 s (1.5 s) rms 0.27 clicks 0 SNR 84 dB / 1.5-3.0 s (1.5 s) rms 0.73 clicks 1082 SNR -2 dB
widened: 0.0-1.5 s (1.5 s) rms 0.27 clicks 0 SNR 84 dB / 1.5-3.0 s (1.5 s) rms 0.75 clicks 0 SNR 93 dB; innocent: 0.0-1.5 s (1.5 s) rms 0.27 clicks 0 SNR 84 dB / 1.5-3.0 s (1.5 s) rms 0.73 clicks 1082 SNR -2 dB
suspect: 29 exact (1.25 has an exact float16)

Expectation, written first: float samples times 32768 go to int16 without a clip; a sample of 1.0 or more wraps to a large
negative value. Remedy: 32767 and clamp (or a wider integer). The gain in float16 is exact.
"""
import math

import torch


class AudioSegment:
    def __init__(self, pcm, sample_rate):
        self.pcm, self.sample_rate = pcm, sample_rate

    @property
    def seconds(self):
        return len(self.pcm) / self.sample_rate


class GradioASRDemo:
    def __init__(self, sample_rate=8000):
        self.sample_rate = sample_rate
        self.gain = torch.tensor(1.25, dtype=torch.float16)

    def normalize(self, audio):
        return audio * self.gain.float()

    def to_pcm(self, audio):
        return (audio * 32768.0).to(torch.int16)  # BORN

    def extract_segments(self, audio, spans):
        audio = self.normalize(audio)
        segments = []
        for start, end in spans:
            clip = audio[int(start * self.sample_rate):int(end * self.sample_rate)]
            segments.append(AudioSegment(self.to_pcm(clip), self.sample_rate))
        return segments


def energy_vad(segment, frame=200):
    wave = segment.pcm.float() / 32768
    frames = wave[: len(wave) // frame * frame].view(-1, frame)
    return frames.square().mean(dim=1).sqrt()


def click_count(segment, step=0.9):
    wave = segment.pcm.float() / 32768
    return int((wave.diff().abs() > step).sum())


def snr(segment, reference):
    wave = segment.pcm.double() / 32768
    noise = (wave - reference).square().mean()
    return 10 * torch.log10(reference.square().mean() / noise).item()


def load_audio(sample_rate, seconds=3):
    generator = torch.Generator().manual_seed(383)
    t = torch.arange(sample_rate * seconds) / sample_rate
    tone = torch.sin(2 * math.pi * 180 * t) * (0.3 + 0.55 * (t > 1.5))
    return tone + 0.01 * torch.randn(len(t), generator=generator)


def main():
    demo = GradioASRDemo()
    audio = load_audio(demo.sample_rate)
    spans = [(0.0, 1.5), (1.5, 3.0)]
    for (start, end), segment in zip(spans, demo.extract_segments(audio, spans)):
        reference = (audio * 1.25)[int(start * 8000):int(end * 8000)].double()
        print(f"{start:.1f}-{end:.1f} s ({segment.seconds:.1f} s) rms {energy_vad(segment).mean():.2f} "
              f"clicks {click_count(segment)} SNR {snr(segment, reference):.0f} dB")


if __name__ == "__main__":
    main()
