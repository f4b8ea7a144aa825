"""
title: climate emulator's aggregator sums float32 metrics in float64 and reports float32
expect: clean
thread: https://github.com/ai2cm/ace/issues/380
measured: PRESsfc mean 98595.97 bias 96.1912 | TMP2m mean 287.78 bias 0.2808
suspect: 36 result-only: the sum and the division are float64, only the finished mean is cast to float32

Expectation, written first: surface pressure near 1e5 Pa is averaged over many batches. The running sum is float64
and the area weights are normalised in float64; the finished means are cast to float32 for the log, whose spacing
at 1e5 is 0.008 Pa. The printed means equal those of a run in float64 throughout.
"""
from typing import Callable, Dict, Optional

import torch

MODEL_DTYPE = torch.float32
LOG_DTYPE = torch.float32


class MeanComparison:
    def __init__(self, metric: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]):
        self._metric = metric
        self._sum: Optional[Dict[str, torch.Tensor]] = None
        self._n_batches = 0

    def record(self, target: Dict[str, torch.Tensor], gen: Dict[str, torch.Tensor]):
        values = {k: self._metric(target[k], gen[k]) for k in target}
        if self._sum is None:
            self._sum = {k: torch.zeros_like(v, dtype=torch.float64) for k, v in values.items()}
        for k, v in values.items():
            self._sum[k] += v.to(torch.float64)
        self._n_batches += 1

    def get(self) -> Dict[str, torch.Tensor]:
        assert self._sum is not None
        return {k: (v / self._n_batches).to(LOG_DTYPE) for k, v in self._sum.items()}


class LatLonOperations:
    def __init__(self, n_lat: int, n_lon: int):
        lats = torch.linspace(-90 + 90 / n_lat, 90 - 90 / n_lat, n_lat, dtype=torch.float64)
        weights = torch.cos(torch.deg2rad(lats))[:, None].expand(n_lat, n_lon)
        self.area_weights = weights / weights.sum()

    def mean(self, data: torch.Tensor) -> torch.Tensor:
        return (data.to(torch.float64) * self.area_weights).sum(dim=(-2, -1))


class PersistenceEmulator:
    def __init__(self, ops, seed=0):
        self.generator = torch.Generator().manual_seed(seed)
        self.ops = ops

    def initial_condition(self, shape):
        noise = torch.randn(shape, generator=self.generator, dtype=torch.float64)
        return {
            "PRESsfc": (98500.0 + 1200.0 * noise).to(MODEL_DTYPE),
            "TMP2m": (287.5 + 12.0 * noise.roll(3, -1)).to(MODEL_DTYPE),
        }

    def step(self, state):
        out = {}
        for name, field in state.items():
            smooth = 0.25 * (field.roll(1, -1) + field.roll(-1, -1)) + 0.5 * field
            out[name] = smooth * (1.0 + 2.0**-10)
        return out


if __name__ == "__main__":
    torch.manual_seed(0)
    ops = LatLonOperations(16, 32)
    emulator = PersistenceEmulator(ops)
    bias = MeanComparison(lambda t, g: ops.mean(g - t).mean())
    level = MeanComparison(lambda t, g: ops.mean(g).mean())
    for _ in range(300):
        target = emulator.initial_condition((2, 16, 32))
        gen = emulator.step(target)
        bias.record(target, gen)
        level.record(target, gen)
    for name, value in level.get().items():
        print(name, f"mean {value.item():.2f}", f"bias {bias.get()[name].item():.4f}")
