"""
title: audio is companded and quantised to eight bits for a vocoder and decoded with the expected signal-to-noise ratio
expect: clean
thread: https://github.com/bshall/UniversalVocoding/issues/8
measured: clip 0: 220 Hz, rms 0.566 / clip 1: 523 Hz, rms 0.212 / codes used 246 ; with 32-bit codes: clip 0: 220 Hz, rms 0.566 / clip 1: 523 Hz, rms 0.212 / codes used 246
suspect: 20 purpose (codes are whole numbers from 0 to 255 after the floor, so uint8 holds them exactly)

Expectation, written first: the encoder companded the waveform, floors it to one of 256 levels and stores the codes as uint8; that is the
format of the vocoder, every code survives the storage, and the reconstruction has the level and pitch of the input.
"""
import math

import torch


def mulaw_encode(x, mu):
    mu = mu - 1
    fx = torch.sign(x) * torch.log1p(mu * x.abs()) / math.log1p(mu)
    codes = torch.floor((fx + 1) / 2 * mu + 0.5)
    return codes.to(torch.uint8)


def mulaw_decode(y, mu):
    mu = mu - 1
    x = 2 * y.float() / mu - 1
    return torch.sign(x) / mu * ((1 + mu) ** x.abs() - 1)


class VocoderDataset:
    def __init__(self, waves, bits=8):
        self.mu = 2 ** bits
        self.items = [mulaw_encode(w, self.mu) for w in waves]

    def histogram(self):
        return torch.bincount(torch.cat(self.items).long(), minlength=self.mu)

    def restore(self, i):
        return mulaw_decode(self.items[i], self.mu)


def tone(freq, sr, seconds, level):
    t = torch.arange(int(sr * seconds), dtype=torch.float64) / sr
    return (level * torch.sin(2 * math.pi * freq * t)).float()


def dominant_frequency(wave, sr):
    spectrum = torch.fft.rfft(wave).abs()
    return spectrum.argmax().item() * sr / wave.numel()


def main():
    sr = 16000
    waves = [tone(220.0, sr, 1.0, 0.8), tone(523.0, sr, 1.0, 0.3)]
    dataset = VocoderDataset(waves)
    for i, wave in enumerate(waves):
        restored = dataset.restore(i)
        level = restored.pow(2).mean().sqrt().item()
        print(f"clip {i}: {dominant_frequency(restored, sr):.0f} Hz, rms {level:.3f}")
    print(f"codes used {int((dataset.histogram() > 0).sum())}")


if __name__ == "__main__":
    main()
