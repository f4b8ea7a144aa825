"""
title: The harmonic source of the vocoder leaves bfloat16 through a FloatTensor of factors
expect: collision
thread: https://github.com/tenstorrent/tt-xla/issues/5328
fix_at: the model.to(torch.bfloat16) of the loader

Expectation, written first: The loader casts the TTS model to bfloat16. The sine generator multiplies the
pitch with a torch.FloatTensor of harmonic numbers, which promotes it to float32, and nobody casts back;
the merging linear layer gets Float input and BFloat16 weights and raises.
"""
import math

import torch
import torch.nn as nn


class SineGen(nn.Module):
    def __init__(self, samp_rate, harmonic_num=8, sine_amp=0.1, voiced_threshold=10):
        super().__init__()
        self.sampling_rate, self.harmonic_num = samp_rate, harmonic_num
        self.sine_amp, self.voiced_threshold = sine_amp, voiced_threshold

    def _f02sine(self, f0_values):
        rad_values = (f0_values / self.sampling_rate) % 1
        return torch.sin(torch.cumsum(rad_values, dim=1) * 2 * math.pi)

    def forward(self, f0):
        harmonics = torch.FloatTensor([[range(1, self.harmonic_num + 2)]]).to(f0.device)  # BORN
        fn = torch.multiply(f0, harmonics)  # BORN
        sine_waves = self._f02sine(fn) * self.sine_amp
        uv = (f0 > self.voiced_threshold).to(f0.dtype)
        return sine_waves * uv, uv


class SourceModuleHnNSF(nn.Module):
    def __init__(self, sampling_rate, harmonic_num=8):
        super().__init__()
        self.l_sin_gen = SineGen(sampling_rate, harmonic_num)
        self.l_linear = nn.Linear(harmonic_num + 1, 1)
        self.l_tanh = nn.Tanh()

    def forward(self, x):
        sine_wavs, uv = self.l_sin_gen(x)  # BORN
        return self.l_tanh(self.l_linear(sine_wavs)), uv  # BORN COLLIDES


class Generator(nn.Module):
    def __init__(self, hidden, hop=20):
        super().__init__()
        self.f0_upsamp = nn.Upsample(scale_factor=hop)
        self.m_source = SourceModuleHnNSF(24000)
        self.noise_conv = nn.Conv1d(1, hidden, hop, stride=hop)
        self.up = nn.ConvTranspose1d(hidden, 1, hop, stride=hop)

    def forward(self, x, f0):
        f0 = self.f0_upsamp(f0[:, None]).transpose(1, 2)
        har_source, uv = self.m_source(f0)
        x = x + self.noise_conv(har_source.transpose(1, 2))
        return torch.tanh(self.up(nn.functional.leaky_relu(x, 0.1)))


class KModel(nn.Module):
    def __init__(self, vocab=50, hidden=16):
        super().__init__()
        self.bert = nn.Embedding(vocab, hidden)
        self.F0_proj = nn.Linear(hidden, 1)
        self.decoder = Generator(hidden)

    @torch.no_grad()
    def forward_with_tokens(self, input_ids):
        h = self.bert(input_ids)
        f0 = self.F0_proj(h).squeeze(-1).exp() * 120
        return self.decoder(h.transpose(1, 2), f0).squeeze()


def load_model(dtype_override=None):
    torch.manual_seed(14)
    model = KModel().eval()
    return model.to(dtype_override) if dtype_override is not None else model


def main():
    ids = torch.arange(1, 13)[None]
    for dtype in (None, torch.bfloat16):
        audio = load_model(dtype).forward_with_tokens(ids)
        print(dtype, audio.shape[0], round(audio.float().abs().mean().item(), 5))


if __name__ == "__main__":
    main()
