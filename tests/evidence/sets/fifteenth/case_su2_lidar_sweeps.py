"""
title: the converter writes frame timestamps in microseconds into a float32 record of the sweep
expect: silent:precision-loss|downcast|round-trip
thread: https://github.com/open-mmlab/mmdetection3d/issues/296
measured: oldest sweep 0.00 s back, size of the car 13.3 x 3.8 m
widened: oldest sweep 0.90 s back, size of the car 4.2 x 1.7 m

Expectation, written first: microseconds since 1970 have a float32 step of two minutes, all sweeps of a drive get the
same time, the time lag of every earlier sweep is zero and moving cars are smeared. Intensities in float16 only pass a
threshold far away from their values.
"""
import numpy as np
import torch


class Drive:
    """a car that moves at constant speed, seen by a spinning lidar"""

    def __init__(self, sweeps, seed, start=1_550_083_467_346_370, period=100_000):
        rng = np.random.default_rng(seed)
        self.stamps = start + period * np.arange(sweeps, dtype=np.int64)
        self.speed = np.array([12.0, -3.0])
        self.frames = []
        for k in range(sweeps):
            body = rng.uniform([-2.2, -0.9], [2.2, 0.9], (300, 2)) + self.speed * k * period * 1e-6
            intensity = rng.uniform(0.5, 0.9, 300).astype(np.float16)
            clutter = rng.uniform(-40, 40, (100, 2))
            dim = rng.uniform(0.0, 0.2, 100).astype(np.float16)
            self.frames.append((np.concatenate([body, clutter]), np.concatenate([intensity, dim])))


class Converter:
    def info(self, k, drive):
        points, intensity = drive.frames[k]
        stamp = np.full((len(points), 1), drive.stamps[k])
        record = np.concatenate([points, intensity[:, None], stamp], axis=1)
        return torch.from_numpy(record.astype(np.float32))  # BORN


class SweepLoader:
    """brings the earlier sweeps to the time of the key frame with the known velocity"""

    def __init__(self, infos, speed):
        self.infos, self.speed = infos, torch.as_tensor(speed, dtype=torch.float32)

    def load(self, bright=0.35):
        key, out = self.infos[-1], []
        for info in self.infos:
            lag = (key[0, 3] - info[:, 3]).float() * 1e-6
            xy = info[:, :2].float() + lag[:, None] * self.speed
            out.append(torch.cat([xy, lag[:, None]], dim=1)[info[:, 2] > bright])
        return torch.cat(out)


def extent(points):
    q = torch.tensor([0.02, 0.98], dtype=points.dtype)
    low, high = torch.quantile(points[:, :2], q, dim=0)
    return (high - low).tolist()


def main():
    drive, converter = Drive(10, seed=7), Converter()
    infos = [converter.info(k, drive) for k in range(10)]
    points = SweepLoader(infos, drive.speed).load()
    length, width = extent(points)
    lag = points[:, 2].max().item()
    print(f"oldest sweep {lag:.2f} s back, size of the car {length:.1f} x {width:.1f} m")


main()
