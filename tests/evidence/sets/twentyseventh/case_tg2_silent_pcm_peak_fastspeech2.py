"""
title: the synthesized speech clicks at its loudest samples
expect: silent:overflow|downcast
thread: https://github.com/ming024/FastSpeech2/pull/81
measured: clicks [2, 2] lowest sample [-32768, -32768] highest [32762, 32762]
widened: clicks [0, 0] lowest sample [-32753, -32762] highest [32767, 32767]; innocent: clicks [2, 2] lowest sample [-32768, -32768] highest [32762, 32762]
suspect: 61 exact (lengths of a few thousand samples fit int16)

Expectation, written first: the normalised wave reaches exactly 1.0 at its positive peak and max_wav_value is 32768, one
more than int16 holds, so those samples become -32768: a full-scale click. Remedy: 32767, or clip before the cast. The
lengths as int16 are exact.
"""
import torch
import torch.nn as nn


class PreprocessConfig:
    sampling_rate = 8000
    max_wav_value = 32768.0


class Vocoder(nn.Module):
    def __init__(self, hop):
        super().__init__()
        self.hop = hop

    def forward(self, mels):
        f0 = mels[:, 0].repeat_interleave(self.hop, dim=1)
        gain = mels[:, 1].repeat_interleave(self.hop, dim=1)
        phase = torch.cumsum(f0 / PreprocessConfig.sampling_rate, dim=1)
        wave = gain * torch.sin(2 * torch.pi * phase)
        return wave / wave.abs().amax(dim=1, keepdim=True)


def vocoder_infer(mels, vocoder, config, lengths=None):
    with torch.no_grad():
        wavs = vocoder(mels)
    wavs = (wavs * config.max_wav_value).to(torch.int16)  # BORN
    wavs = [w for w in wavs]
    for i in range(len(wavs)):
        if lengths is not None:
            wavs[i] = wavs[i][: lengths[i]]
    return wavs


def clicks(wav, limit=30000):
    step = wav[1:].long() - wav[:-1].long()
    return int((step.abs() > limit).sum())


def synth_batch(frames):
    t = torch.arange(frames) / frames
    f0 = torch.stack([120 + 40 * t, 200 - 60 * t])
    gain = torch.stack([0.4 + 0.6 * torch.sin(9 * t).abs(), torch.exp(-3 * (t - 0.5) ** 2)])
    return torch.stack([f0, gain], dim=1)


def main():
    vocoder = Vocoder(hop=64)
    mels = synth_batch(100)
    lengths = torch.tensor([6400, 5000]).to(torch.int16)
    wavs = vocoder_infer(mels, vocoder, PreprocessConfig, lengths.tolist())
    print("clicks", [clicks(w) for w in wavs], "lowest sample", [int(w.min()) for w in wavs],
          "highest", [int(w.max()) for w in wavs])


main()
