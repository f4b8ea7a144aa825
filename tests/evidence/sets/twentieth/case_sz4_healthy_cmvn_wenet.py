"""
title: cmvn statistics are taken of a waveform scaled back by 1 << 15, which undoes the loader's normalisation exactly
expect: clean
thread: https://github.com/wenet-e2e/wenet/issues/1042
measured: samples unchanged True frames 588 ; mean [26.211, 20.997, 20.971, 20.998, 20.993, 20.992, 20.98, 20.974] ; istd [33.528, 3.311, 3.648, 3.636, 3.633, 3.598, 3.68, 3.268]
suspect: 48 exact (the samples were 16 bit to begin with)

Expectation, written first: the loader divides 16-bit samples by 32768 and the script multiplies by 32768 and goes back to int16; both are powers of
two, so each sample returns to itself, also -32768. The statistics are then accumulated in float64. The round trip loses nothing.
"""
import math
import torch


def load_wav(seed, n=16000):
    g = torch.Generator().manual_seed(seed)
    t = torch.arange(n) / 16000
    wave = 20000 * torch.sin(2 * math.pi * (200 + 40 * seed) * t) + 3000 * torch.randn(n, generator=g)
    pcm = wave.round().clamp(-32768, 32767).to(torch.int16)
    pcm[seed] = -32768
    return pcm


def torchaudio_load(pcm):
    return pcm.to(torch.float32) / 32768.0


class LogEnergyBank:
    def __init__(self, bins=8, frame=400, hop=160):
        self.bins, self.frame, self.hop = bins, frame, hop
        self.window = torch.hann_window(frame)

    def __call__(self, pcm):
        frames = pcm.to(torch.float32).unfold(0, self.frame, self.hop) * self.window
        power = torch.fft.rfft(frames).abs().pow(2)[:, 1:].unfold(1, 25, 25).mean(-1)
        return power[:, :self.bins].clamp(min=1.0).log()


class CollateFunc:
    def __init__(self, bank):
        self.bank = bank

    def __call__(self, batch):
        total = torch.zeros(self.bank.bins, dtype=torch.float64)
        square = torch.zeros(self.bank.bins, dtype=torch.float64)
        count = 0
        for waveform in batch:
            samples = (waveform * (1 << 15)).to(torch.int16)
            feats = self.bank(samples).double()
            total += feats.sum(0)
            square += feats.pow(2).sum(0)
            count += feats.shape[0]
        return count, total, square


def main():
    files = [load_wav(seed) for seed in range(6)]
    collate = CollateFunc(LogEnergyBank())
    frames, total, square = 0, 0, 0
    for start in range(0, len(files), 2):
        n, t, s = collate([torchaudio_load(f) for f in files[start:start + 2]])
        frames, total, square = frames + n, total + t, square + s
    mean = total / frames
    istd = (square / frames - mean ** 2).clamp(min=1e-20).rsqrt()
    back = [(torchaudio_load(f) * (1 << 15)).to(torch.int16) for f in files]
    print("samples unchanged", all(torch.equal(a, b) for a, b in zip(files, back)), "frames", frames)
    print("mean", [round(v, 3) for v in mean.tolist()])
    print("istd", [round(v, 3) for v in istd.tolist()])


main()
