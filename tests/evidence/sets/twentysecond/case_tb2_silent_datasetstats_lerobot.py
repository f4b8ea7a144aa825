"""
title: dataset statistics report a standard deviation of zero for joints that move a little around a large offset
expect: silent:cancellation|precision-loss
thread: https://github.com/huggingface/lerobot/pull/4704
measured: frames 2400 mean [10000.0, 8192.5, -0.0] | std [0.0, 0.0, 0.29] | largest z-score [260000000.0, 130000000.0, 2.9]
widened: frames 2400 mean [10000.0, 8192.5, -0.0] | std [0.8, 0.5, 0.29] | largest z-score [3.2, 2.6, 2.9]; innocent: frames 2400 mean [10000.0, 8192.5, -0.0] | std [0.0, 0.0, 0.29] | largest z-score [260000000.0, 130000000.0, 2.9]
suspect: line 18 - innocent: the sample count is a small whole number, which float32 holds exactly

Expectation, written first: the running statistics keep mean and mean of squares in float32 and take their
difference. At an offset of 10000 the squares stand at 1e8, where float32 has steps of 8, so a variance of 0.6
is lost. The std is zero or wild and the z-scores are nonsense. The count in float32 is harmless.
"""
import torch


class RunningQuantileStats:
    def __init__(self):
        self._count = torch.zeros((), dtype=torch.float32)
        self._mean = None
        self._mean_of_squares = None
        self._min = None
        self._max = None

    def update(self, batch):
        batch = torch.as_tensor(batch, dtype=torch.float32).reshape(-1, batch.shape[-1])  # BORN
        n = batch.shape[0]
        batch_mean = batch.mean(dim=0)
        batch_mean_of_squares = (batch ** 2).mean(dim=0)  # BORN
        if self._mean is None:
            self._mean, self._mean_of_squares = batch_mean, batch_mean_of_squares
            self._min, self._max = batch.amin(0), batch.amax(0)
        else:
            weight = n / (self._count + n)
            self._mean = self._mean + (batch_mean - self._mean) * weight
            self._mean_of_squares = (
                self._mean_of_squares + (batch_mean_of_squares - self._mean_of_squares) * weight
            )
            self._min = torch.minimum(self._min, batch.amin(0))
            self._max = torch.maximum(self._max, batch.amax(0))
        self._count += n

    def get_statistics(self):
        variance = self._mean_of_squares - self._mean ** 2  # BORN
        std = variance.clamp(min=0).sqrt()
        return {"mean": self._mean, "std": std, "min": self._min, "max": self._max, "count": int(self._count)}


class EpisodeReader:
    offsets = torch.tensor([10000.0, 8192.5, 0.0], dtype=torch.float64)
    spreads = torch.tensor([0.8, 0.5, 0.3], dtype=torch.float64)

    def __init__(self, episodes=12, frames=200, seed=5):
        gen = torch.Generator().manual_seed(seed)
        self.episodes = [
            self.offsets + self.spreads * torch.randn(frames, 3, generator=gen, dtype=torch.float64)
            for _ in range(episodes)
        ]

    def __iter__(self):
        return iter(self.episodes)


def normalize(state, stats):
    return (state - stats["mean"]) / (stats["std"] + 1e-8)


def main():
    reader = EpisodeReader()
    stats = RunningQuantileStats()
    for episode in reader:
        stats.update(episode)
    s = stats.get_statistics()
    z = normalize(reader.episodes[0], s)
    print("frames", s["count"], "mean", [round(v, 1) for v in s["mean"].tolist()])
    print("std", [round(v, 2) for v in s["std"].tolist()])
    print("largest z-score", [float(f"{v:.2g}") for v in z.abs().amax(0).tolist()])


if __name__ == "__main__":
    main()
