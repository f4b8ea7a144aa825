"""
title: broken rows of a miniscope video are looked for by the contrast of neighbouring pixels
expect: silent:overflow|integer-overflow|wraparound
thread: https://github.com/miniscope/mio/pull/94
measured: broken frames found 10 of 10, good frames thrown away 50 of 50
widened: broken frames found 10 of 10, good frames thrown away 0 of 50

Expectation, written first: the differences of uint8 pixels wrap, a step of -1 becomes 255, and healthy rows look like
noise. The thresholds for the rows are made in half precision, which is exact enough for whole numbers of grey levels.
"""
import numpy as np
import torch


class Reader:
    def __init__(self, size=64, seed=0):
        self.rng = np.random.default_rng(seed)
        self.size = size

    def frame(self, broken_rows):
        y, x = np.mgrid[0 : self.size, 0 : self.size]
        picture = 60 + 15 * np.sin(x / 9) * np.cos(y / 11)
        picture += self.rng.normal(0, 1.0, picture.shape)
        if broken_rows:
            start = self.rng.integers(0, self.size - broken_rows)
            picture[start : start + broken_rows] = self.rng.integers(0, 255, (broken_rows, self.size))
        raw = np.clip(picture, 0, 255).astype(np.uint8)  # BORN
        return torch.from_numpy(raw)  # BORN


class ContrastDetector:
    def __init__(self, limit=20, rows=3):
        self.limit = torch.full((1,), limit, dtype=torch.float16)
        self.rows = rows

    def noisy_rows(self, frame):
        steps = frame.diff(dim=1).abs()
        contrast = steps.float().mean(1)
        return (contrast > self.limit).sum().item()

    def __call__(self, frame):
        return self.noisy_rows(frame) >= self.rows


class Tally:
    def __init__(self):
        self.found = self.false = self.broken = self.good = 0

    def add(self, flagged, broken):
        if broken:
            self.broken += 1
            self.found += flagged
        else:
            self.good += 1
            self.false += flagged


def main():
    reader, detector, tally = Reader(), ContrastDetector(), Tally()
    for k in range(60):
        rows = 12 if k % 6 == 0 else 0
        tally.add(detector(reader.frame(rows)), rows > 0)
    print(f"broken frames found {tally.found} of {tally.broken}, good frames thrown away {tally.false} of {tally.good}")


main()
