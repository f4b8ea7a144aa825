"""
title: image statistics for normalisation are wrong because the squares of uint8 pixels wrap around
expect: silent:integer-overflow|overflow|wraparound
thread: https://github.com/Physical-Intelligence/openpi/pull/1051
measured: mean [120, 90, 60] std [0, 0, 0] | normalised abs mean [86.6, 84.3, 67.5]
widened: mean [120, 90, 60] std [30, 25, 12] | normalised abs mean [0.8, 0.8, 0.8]; innocent: mean [120, 90, 60] std [0, 0, 0] | normalised abs mean [86.6, 84.3, 67.5]
suspect: line 63 - innocent: the normalised pixels lie within a few units, float16 is enough for the printed means

Expectation, written first: the camera frames arrive as uint8 and the running stats square them in that type, so every
square is taken modulo 256. The mean of squares stays near 127, the variance comes out negative and is clipped to
zero. The mean is right, since it is taken in float32. The later float16 cast of the normalised frames is harmless.
"""
import torch


class RunningStats:
    def __init__(self):
        self._count = 0
        self._mean = None
        self._mean_of_squares = None

    def update(self, batch):
        batch = batch.reshape(-1, batch.shape[-1])
        n = batch.shape[0]
        batch_mean = batch.float().mean(dim=0)
        batch_mean_of_squares = (batch ** 2).float().mean(dim=0)  # BORN
        if self._mean is None:
            self._mean = torch.zeros_like(batch_mean)
            self._mean_of_squares = torch.zeros_like(batch_mean)
        self._count += n
        self._mean += (batch_mean - self._mean) * (n / self._count)
        self._mean_of_squares += (batch_mean_of_squares - self._mean_of_squares) * (n / self._count)

    def get_statistics(self):
        variance = self._mean_of_squares - self._mean ** 2
        return self._mean, variance.clamp(min=0.0).sqrt()


class CameraStream:
    levels = (120.0, 90.0, 60.0)
    spread = (30.0, 25.0, 12.0)

    def __init__(self, n_batches=6, seed=2):
        self.gen = torch.Generator().manual_seed(seed)
        self.n_batches = n_batches

    def frame(self, batch=4, side=24):
        noise = torch.randn(batch, side, side, 3, generator=self.gen)
        pixels = torch.tensor(self.levels) + noise * torch.tensor(self.spread)
        return pixels.round().clamp(0, 255).to(torch.uint8)

    def __iter__(self):
        for _ in range(self.n_batches):
            yield self.frame()


class Normalize:
    def __init__(self, mean, std):
        self.mean, self.std = mean, std

    def __call__(self, frames):
        out = (frames.float() - self.mean) / (self.std + 1e-1)
        return out.clamp(-100, 100).to(torch.float16)


def main():
    stream = CameraStream()
    stats = RunningStats()
    for frames in stream:
        stats.update(frames)
    mean, std = stats.get_statistics()
    out = Normalize(mean, std)(stream.frame())
    print("mean", [round(v) for v in mean.tolist()], "std", [round(v) for v in std.tolist()])
    print("normalised abs mean", [round(v, 1) for v in out.float().abs().mean((0, 1, 2)).tolist()])


if __name__ == "__main__":
    main()
