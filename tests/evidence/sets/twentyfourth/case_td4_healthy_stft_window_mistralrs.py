"""
title: the window of the mel front end is built in float64 and cut to float32
expect: clean
thread: https://github.com/Kubedoll-Heavy-Industries/mistral.rs/issues/87
measured: frames 97 mean -0.528 peak bands [5, 21, 22]
suspect: 28 negligible (the window in float32 is off by 1e-8, far below the mel floor)

Expectation, written first: the window is computed in float64 and cast to float32 like the samples; the rounding is near
1e-8 relative and the floor of the mel bank is 1e-5. The features do not change in what is printed.
"""
import math

import torch


class AudioProcessorConfig:
    sample_rate = 16000
    frame_length = 512
    hop_length = 160
    num_mel = 32
    mel_floor = 1e-5
    preemphasis = 0.97


def hann_window(length):
    n = torch.arange(length, dtype=torch.float64)
    window = 0.5 - 0.5 * torch.cos(2 * math.pi * n / length)
    return window.to(torch.float32)


def mel_bank(config):
    bins = config.frame_length // 2 + 1
    freqs = torch.linspace(0, config.sample_rate / 2, bins, dtype=torch.float64)
    mel_max = 2595 * math.log10(1 + config.sample_rate / 2 / 700)
    edges = 700 * (10 ** (torch.linspace(0, mel_max, config.num_mel + 2, dtype=torch.float64) / 2595) - 1)
    up = (freqs - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    down = (edges[2:, None] - freqs) / (edges[2:] - edges[1:-1])[:, None]
    return torch.minimum(up, down).clamp(min=0)


class AudioProcessor:
    def __init__(self, config):
        self.config = config
        self.window = hann_window(config.frame_length)
        self.bank = mel_bank(config)

    def frames(self, waveform):
        c = self.config
        emphasised = waveform[1:] - c.preemphasis * waveform[:-1]
        return emphasised.unfold(0, c.frame_length, c.hop_length)

    def __call__(self, waveform):
        spectrum = torch.fft.rfft(self.frames(waveform) * self.window, dim=-1)
        mel = spectrum.abs().double() @ self.bank.T
        return torch.log(mel.clamp(min=self.config.mel_floor))


def synth(generator):
    t = torch.arange(16000) / 16000
    tone = 0.3 * torch.sin(2 * torch.pi * 440 * t) + 0.1 * torch.sin(2 * torch.pi * 3100 * t)
    return tone + 0.01 * torch.randn(16000, generator=generator)


def main():
    generator = torch.Generator().manual_seed(87)
    features = AudioProcessor(AudioProcessorConfig())(synth(generator))
    profile = features.mean(0)
    top = profile.topk(3).indices.sort().values.tolist()
    print(f"frames {features.shape[0]} mean {features.mean().item():.3f} peak bands {top}")


main()
