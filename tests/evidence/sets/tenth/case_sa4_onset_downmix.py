"""
title: stereo is mixed down in int16 before onsets are looked for; the filter bank is bfloat16
expect: silent:overflow|wraparound|integer-overflow
thread: https://github.com/CPJKU/SuperFlux/issues/1
measured: onsets found 4 of 11
widened: onsets found 11 of 11
fix_at: 21

Expectation, written first: loud passages pass 32767 when left and right are added, the sum
wraps and the broad noise of it buries the quiet onsets. The filter bank in bfloat16 changes
band energies by less than a percent; float32 for it finds no more onsets.
"""
import torch


def read_wave(signal):
    return (signal * 32767).round().to(torch.int16)  # BORN


def downmix(frames):
    return (frames[0] + frames[1]) // 2


def filter_bank(bins, bands=12):
    edges = torch.linspace(2, bins, bands + 2)
    k = torch.arange(bins)[:, None]
    up = (k - edges[:-2]) / (edges[1:-1] - edges[:-2])
    down = (edges[2:] - k) / (edges[2:] - edges[1:-1])
    bank = torch.minimum(up, down).clamp(min=0)
    return bank.to(torch.bfloat16).float()


def flux(mono, size=512, hop=256):
    spec = torch.stft(mono.float() / 32767, size, hop, window=torch.hann_window(size), return_complex=True).abs()
    bands = torch.log10(1 + 10 * filter_bank(spec.shape[0]).T @ spec)
    return bands.diff(dim=-1).clamp(min=0).sum(0)


def track(gen, seconds=6, rate=16000):
    t = torch.arange(seconds * rate) / rate
    hum = 0.93 * torch.sin(2 * torch.pi * 90 * t)
    onsets = torch.arange(0.5, seconds - 0.3, 0.5)
    clicks = torch.zeros_like(t)
    for o in onsets.tolist():
        i = int(o * rate)
        burst = torch.randn(800, generator=gen) * torch.exp(-torch.arange(800) / 200)
        clicks[i:i + 800] += 0.02 * burst
    left, right = (hum + clicks).clamp(-1, 1), (0.95 * hum + clicks).clamp(-1, 1)
    return torch.stack([left, right]), onsets


def main():
    signal, onsets = track(torch.Generator().manual_seed(0))
    strength = flux(downmix(read_wave(signal)))
    found = strength[2:-2].topk(len(onsets) * 2).indices + 3
    times = found * 256 / 16000
    hits = sum((times - o).abs().min().item() < 0.04 for o in onsets)
    print(f"onsets found {hits} of {len(onsets)}")


main()
