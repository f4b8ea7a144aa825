"""
title: the short-term energy of loud speech is negative, as int16 samples are squared in int16
expect: silent:integer-overflow|overflow|wraparound
thread: https://github.com/tyiannak/pyAudioAnalysis/issues/194
measured: frames 79 negative energies 25 | loudest frame 2.03e+03 zcr 0.270 kept as speech 75
widened: frames 79 negative energies 0 | loudest frame 4.05e+07 zcr 0.270 kept as speech 41; innocent: frames 79 negative energies 25 | loudest frame 2.03e+03 zcr 0.270 kept as speech 75
suspect: line 36 - innocent: signs are -1, 0 or 1 and their differences at most 2, int16 holds them

Expectation, written first: the reader gives int16 samples and the energy squares the frame in that type, so every
square above 32767 is taken modulo 65536 and may be negative. Loud frames get energies near zero or below, and the
silence detector drops speech. The zero-crossing rate works on signs and is right.
"""
import math

import torch

FS = 8000


def read_audio_file(pcm_bytes):
    return FS, torch.frombuffer(bytearray(pcm_bytes), dtype=torch.int16)  # BORN


class AudioFeatureExtractor:
    def __init__(self, fs, win=0.05, step=0.025):
        self.window = int(win * fs)
        self.step = int(step * fs)

    def frames(self, signal):
        return signal.unfold(0, self.window, self.step)

    def st_energy(self, frame):
        return torch.sum(frame ** 2) / len(frame)  # BORN

    def st_zcr(self, frame):
        signs = torch.sign(frame)
        crossings = (signs[1:] - signs[:-1]).abs().sum() / 2
        return crossings / (len(frame) - 1)

    def extract(self, signal):
        rows = []
        for frame in self.frames(signal):
            rows.append(torch.stack([self.st_zcr(frame), self.st_energy(frame)]))
        return torch.stack(rows)


class SilenceRemoval:
    def __init__(self, share=0.1):
        self.share = share

    def __call__(self, energies):
        order = energies.sort().values
        low, high = order[: len(order) // 10].mean(), order[-len(order) // 10:].mean()
        return energies > low + self.share * (high - low)


def recording(seconds=2.0, seed=4):
    gen = torch.Generator().manual_seed(seed)
    t = torch.arange(int(FS * seconds)) / FS
    voiced = ((t % 1.0) < 0.5).float()
    tone = 9000 * torch.sin(2 * math.pi * 180 * t) * voiced
    noise = 12 * torch.randn(t.shape, generator=gen)
    return (tone + noise).round().clamp(-32768, 32767).to(torch.int16).numpy().tobytes()


def main():
    fs, signal = read_audio_file(recording())
    extractor = AudioFeatureExtractor(fs)
    features = extractor.extract(signal)
    kept = SilenceRemoval()(features[:, 1])
    energy = features[:, 1]
    print(f"frames {len(energy)} negative energies {int((energy < 0).sum())}")
    print(f"loudest frame {energy.max():.2e} zcr {features[:, 0].mean():.3f} kept as speech {int(kept.sum())}")


if __name__ == "__main__":
    main()
