"""
title: per-feature normalisation takes the variance as E[x^2] - E[x]^2 in float32
expect: silent:precision-loss
thread: https://github.com/k2-fsa/sherpa-onnx/pull/3857
measured: largest value 7990, quant step 62.91, speech bins SNR 0.0 dB
widened: largest value 28, quant step 0.22, speech bins SNR 23.9 dB
fix_at: 37

Expectation, written first: one mel bin sits at the log floor with tiny deviations; the
two moments agree in all float32 digits, the variance becomes zero or noise, and the bin
explodes to values in the thousands that ruin the int8 scale of the batch.
"""
import torch


def log_mel(frames=800, bins=80, seed=0):
    gen = torch.Generator().manual_seed(seed)
    feats = -6.0 + 2.5 * torch.randn(frames, bins, generator=gen, dtype=torch.float64)
    floor = torch.full((frames,), -15.94, dtype=torch.float64)
    floor[frames // 2] += 0.08
    feats[:, 3] = floor
    return feats


class NormalizePerFeature:
    def __init__(self, eps=1e-5):
        self.eps = eps

    def stats(self, feats):
        n = feats.shape[0]
        mean = feats.sum(0) / n
        second = (feats * feats).sum(0) / n
        return mean, (second - mean * mean).clamp_min(0)

    def __call__(self, feats):
        x = feats.to(torch.float32)  # BORN
        mean, var = self.stats(x)
        return (x - mean) / (var.sqrt() + self.eps)


def int8_roundtrip(x):
    scale = x.abs().max() / 127
    return (x / scale).round() * scale, scale.item()


def snr(clean, coded):
    noise = ((clean - coded) ** 2).mean()
    return (10 * torch.log10((clean ** 2).mean() / noise)).item()


if __name__ == "__main__":
    feats = log_mel()
    normed = NormalizePerFeature()(feats)
    coded, scale = int8_roundtrip(normed)
    speech = [i for i in range(80) if i != 3]
    print(f"largest value {normed.abs().max().item():.0f}, quant step {scale:.2f}, "
          f"speech bins SNR {snr(normed[:, speech], coded[:, speech]):.1f} dB")
