"""
title: motion between uint8 frames by the larger minus the smaller
expect: clean
thread: https://github.com/fuego-dev/firecam/pull/43
measured: first alarm at frame 11 (smoke from 8), largest gap to signed arithmetic 6.2e-10

Expectation, written first: maximum minus minimum of unsigned bytes never wraps; thresholds
and areas are those of signed arithmetic.
"""
import torch


def absolute_difference(a, b):
    return torch.maximum(a, b) - torch.minimum(a, b)


class SmokeDetector:
    def __init__(self, threshold=20, share=0.01):
        self.threshold, self.share, self.last = threshold, share, None

    def push(self, frame):
        moved = 0.0
        if self.last is not None:
            moved = (absolute_difference(frame, self.last) > self.threshold).float().mean().item()
        self.last = frame
        return moved


def camera(n, gen, size=96):
    base = torch.randint(0, 256, (size, size), generator=gen).float()
    for t in range(n):
        frame = base + 3 * torch.randn(size, size, generator=gen)
        if t >= n // 2:
            y = (t - n // 2) * 3
            frame[40 - y:44, 30:50 + y] += 70
        yield frame.round().clamp(0, 255).to(torch.uint8)


def main():
    gen = torch.Generator().manual_seed(0)
    frames = list(camera(16, gen))
    detector = SmokeDetector()
    got = [detector.push(f) for f in frames]
    wide = [0.0] + [((b.int() - a.int()).abs() > 20).double().mean().item() for a, b in zip(frames, frames[1:])]
    gap = max(abs(g - w) for g, w in zip(got, wide))
    first = next(i for i, g in enumerate(got) if g > detector.share)
    print(f"first alarm at frame {first} (smoke from 8), largest gap to signed arithmetic {gap:.1e}")


main()
