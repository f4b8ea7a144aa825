"""
title: converted lidar frames keep their microsecond time stamps in a float32 column
expect: silent:precision-loss|downcast|round-trip
thread: https://github.com/open-mmlab/mmdetection3d/issues/296
measured: mean lag to a sweep 0.000 s, median speed inf m/s, mean intensity 0.50
widened: mean lag to a sweep 0.200 s, median speed 11.00 m/s, mean intensity 0.50

Expectation, written first: at 1.55e15 microseconds float32 has steps of 134 seconds, so a frame and its sweeps get
one and the same time and the speed of the car has no denominator. The innocent suspects are intensity and
elongation, kept in float16 in the info file: nothing printed depends on their fourth digit.
"""
import torch


class RawFrame:
    def __init__(self, timestamp_us, position, gen):
        self.timestamp_us = timestamp_us
        self.position = position
        self.points = torch.randn(400, 3, generator=gen) * 15
        self.intensity = torch.rand(400, generator=gen)


class Recording:
    """a car that goes straight on at eleven metres per second, ten frames a second"""

    def __init__(self, frames, speed=11.0, first=1550083467346370):
        gen = torch.Generator().manual_seed(1)
        self.frames = [
            RawFrame(first + 100_000 * i + 37 * (i % 3), speed * (0.1 * i + 37e-6 * (i % 3)), gen) for i in range(frames)
        ]


class Converter:
    def __init__(self, sweeps):
        self.sweeps = sweeps

    def points(self, frame):
        stamp = torch.full((len(frame.points), 1), frame.timestamp_us, dtype=torch.int64)
        return torch.cat([frame.points, stamp.to(frame.points.dtype)], dim=1)  # BORN

    def info(self, recording, i):
        frame = recording.frames[i]
        cloud = self.points(frame)
        infos = {
            "points": cloud[:, :3],
            "timestamp": cloud[0, 3],
            "intensity": frame.intensity.half(),
            "position": frame.position,
        }
        infos["sweeps"] = [self.points(recording.frames[j])[0, 3] for j in range(max(0, i - self.sweeps), i)]
        infos["sweep_positions"] = [recording.frames[j].position for j in range(max(0, i - self.sweeps), i)]
        return infos


def time_lags(info):
    return torch.stack([info["timestamp"] - t for t in info["sweeps"]]).double() * 1e-6


def speed(info):
    way = torch.tensor([info["position"] - p for p in info["sweep_positions"]], dtype=torch.float64)
    lag = time_lags(info)
    return (way / lag)[-1].item()


def main():
    recording = Recording(30)
    converter = Converter(sweeps=3)
    infos = [converter.info(recording, i) for i in range(3, 30)]
    lags = torch.cat([time_lags(i) for i in infos])
    speeds = torch.tensor([speed(i) for i in infos])
    bright = torch.stack([i["intensity"].float().mean() for i in infos]).mean()
    print(f"mean lag to a sweep {lags.mean():.3f} s, median speed {speeds.median():.2f} m/s, mean intensity {bright:.2f}")


main()
