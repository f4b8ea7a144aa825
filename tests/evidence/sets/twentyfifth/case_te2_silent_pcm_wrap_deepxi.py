"""
title: enhanced speech is distorted after saving, loud samples change their sign
expect: silent:integer-overflow|overflow
thread: https://github.com/anicolson/DeepXi/issues/22
measured: snr of file 7.5 dB, sign flips 325
widened: snr of file 35.5 dB, sign flips 0; innocent: snr of file 7.5 dB, sign flips 325
suspect: 33 exact (multiples of 1/4)

Expectation, written first: the enhanced wave goes a little above one, is multiplied by 32768 and cast to int16 without
a clip; everything from +1.0 on wraps to the negative end. Remedy: clip, or a wider integer. The gains in half are exact.
"""
import torch


class Config:
    f_s = 16000
    frame = 256
    hop = 128


def stft(wav, cfg):
    return torch.stft(wav, cfg.frame, cfg.hop, window=torch.hann_window(cfg.frame), return_complex=True)


def istft(spec, cfg, length):
    return torch.istft(spec, cfg.frame, cfg.hop, window=torch.hann_window(cfg.frame), length=length)


def gain_function(n_bins):
    gain = torch.ones(n_bins)
    gain[n_bins // 2:] = 0.25
    gain[:4] = 0.5
    return gain.half().float()


def save_wav(wav):
    return (wav * 32768.0).to(torch.int16)  # BORN


def read_wav(pcm):
    return pcm.float() / 32768.0


def infer(noisy, cfg):
    spec = stft(noisy, cfg)
    return istft(spec * gain_function(spec.shape[0])[:, None], cfg, noisy.numel())


def snr(ref, est):
    return (10 * torch.log10(ref.square().sum() / (ref - est).square().sum())).item()


def main():
    torch.manual_seed(22)
    cfg = Config()
    t = torch.arange(cfg.f_s * 2) / cfg.f_s
    speech = 1.02 * torch.sin(2 * torch.pi * 440 * t) * (0.6 + 0.4 * torch.sin(2 * torch.pi * 3 * t))
    noisy = speech + 0.01 * torch.randn(t.numel())
    enhanced = infer(noisy, cfg)
    stored = read_wav(save_wav(enhanced))  # BORN
    flips = (stored.sign() * enhanced.sign() < 0).sum().item()
    print(f"snr of file {snr(speech, stored):.1f} dB, sign flips {flips}")


main()
