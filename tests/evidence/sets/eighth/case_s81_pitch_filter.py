"""
title: a masked averaging filter for pitch tracks under a double default dtype
expect: collision
thread: https://github.com/maxrmorrison/torchcrepe/issues/28

Expectation, written first: the program works in float64, the kernel of ones
follows the default dtype, but the mask is turned to numbers with .float(), which is always
float32, and the convolution refuses the pair (expected scalar type Float but found Double).
BORN is mask.float(); mask.to(signals.dtype) is the change asked for in the thread.
"""
import torch
from torch.nn import functional as F


class MeanFilter:
    """Averages a track over a window, ignoring frames that are nan."""

    def __init__(self, win_length):
        self.win_length = win_length

    def __call__(self, signals):
        signals = signals.unsqueeze(1)
        mask = ~torch.isnan(signals)
        masked = torch.where(mask, signals, torch.zeros_like(signals))
        ones = torch.ones(signals.shape[1], 1, self.win_length)
        total = F.conv1d(masked, ones, padding=self.win_length // 2)
        present = mask.float()  # BORN
        count = F.conv1d(present, ones, padding=self.win_length // 2)  # COLLIDES
        count = count.masked_fill(count == 0, 1)
        return (total / count).squeeze(1)


class PitchTracker:
    def __init__(self, sample_rate=8000, frame=256):
        self.sample_rate, self.frame = sample_rate, frame

    def track(self, wave):
        frames = wave.unfold(0, self.frame, self.frame // 2)
        frames = frames - frames.mean(1, keepdim=True)
        spec = torch.fft.rfft(frames, n=2 * self.frame).abs().square()
        auto = torch.fft.irfft(spec)[:, 20:160]
        lag = auto.argmax(1) + 20
        pitch = self.sample_rate / lag.to(wave.dtype)
        strong = auto.amax(1) > 0.3 * frames.square().sum(1)
        return torch.where(strong, pitch, torch.full_like(pitch, float("nan")))


def main():
    torch.set_default_dtype(torch.float64)
    t = torch.arange(8000) / 8000.0
    wave = torch.sin(2 * torch.pi * (150 + 20 * t) * t)
    wave[3000:3600] = 0.0
    track = PitchTracker().track(wave)
    smooth = MeanFilter(5)(track[None])
    print("frames", track.numel(), "median pitch %.1f" % smooth[0].median().item())


if __name__ == "__main__":
    main()
