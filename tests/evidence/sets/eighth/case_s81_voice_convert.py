"""
title: a voice-conversion encoder fed with a spectrogram made by numpy
expect: collision
thread: https://github.com/KimythAnly/AGAIN-VC/issues/2

Expectation, written first: the numpy spectrogram is float64 and the helper np2pt
keeps that, so the first Conv1d refuses: Input type (double) and bias type (float).
BORN is the helper that turns numpy into torch without a dtype; the project mended it there.
"""
import numpy as np
import torch
from torch import nn


def np2pt(array):
    return torch.from_numpy(array)[None]  # BORN


class Frontend:
    def __init__(self, n_fft=64, hop=16):
        self.n_fft, self.hop = n_fft, hop
        self.window = np.hanning(n_fft)

    def __call__(self, wave):
        frames = [wave[i:i + self.n_fft] * self.window
                  for i in range(0, len(wave) - self.n_fft, self.hop)]
        spec = np.abs(np.fft.rfft(np.stack(frames), axis=1)).T
        return np.log(spec + 1e-5)


class Encoder(nn.Module):
    def __init__(self, bins=33, width=24):
        super().__init__()
        self.first = nn.Conv1d(bins, width, 5, padding=2)
        self.second = nn.Conv1d(width, width, 3, padding=1)

    def forward(self, x):
        h = torch.relu(self.first(x))  # COLLIDES
        h = torch.relu(self.second(h))
        mean = h.mean(-1, keepdim=True)
        return (h - mean) / (h.std(-1, keepdim=True) + 1e-4), mean


class Inferencer:
    def __init__(self, model, frontend):
        self.model, self.frontend = model.eval(), frontend

    @torch.no_grad()
    def inference(self, source, target):
        content, _ = self.model(np2pt(self.frontend(source)))
        _, speaker = self.model(np2pt(self.frontend(target)))
        return content + speaker


def main():
    torch.manual_seed(4)
    t = np.arange(1600) / 1600.0
    source = np.sin(2 * np.pi * 120 * t)
    target = np.sin(2 * np.pi * 220 * t) + 0.1 * np.sin(2 * np.pi * 440 * t)
    out = Inferencer(Encoder(), Frontend()).inference(source, target)
    print("converted", tuple(out.shape), "mean %.3f" % out.mean().item())


if __name__ == "__main__":
    main()
