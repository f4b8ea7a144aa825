"""
title: all sweeps of a driving log have lag zero or minutes: the frame time stamp in microseconds is kept in float32
expect: silent:precision-loss|downcast|cancellation
thread: https://github.com/open-mmlab/mmdetection3d/issues/296
measured: sweeps used 4, lags [0.0, 0.0, 0.0, 0.0]; points 2000, mean lag channel 0.0000, mean intensity 0.767
widened: sweeps used 3, lags [0.1, 0.2, 0.3]; points 1600, mean lag channel 0.1500, mean intensity 0.770
innocent: sweeps used 4, lags [0.0, 0.0, 0.0, 0.0]; points 2000, mean lag channel 0.0000, mean intensity 0.767
suspect: 35 half intensity: small (a channel in 0..1, rounded by 0.05%)

Expectation, written first: Frame times are int64 microseconds near 1.55e15; the info record builds them as a float32 tensor, whose step
    there is 134 s. The lag between frames 0.1 s apart becomes 0 (or 134 s) and the sweeps cannot be told apart. The half precision of the
    intensity only rounds a channel by 0.05%.
"""
import torch


class WaymoFrame:
    def __init__(self, timestamp_micros, points, intensity):
        self.timestamp_micros, self.points, self.intensity = timestamp_micros, points, intensity


def read_segment(n_frames, start=1550083467346370, period=100_000, seed=0):
    g = torch.Generator().manual_seed(seed)
    for i in range(n_frames):
        pts = torch.rand(400, 3, generator=g) * 60 - 30
        pts[:, 0] += 0.9 * i
        yield WaymoFrame(start + i * period, pts, torch.rand(400, generator=g) * 3)


class WaymoConverter:
    def __init__(self, max_sweeps=4):
        self.max_sweeps, self.infos = max_sweeps, []

    def save_lidar(self, frame):
        intensity = torch.tanh(frame.intensity).to(torch.float16).float()
        return torch.cat([frame.points, intensity[:, None]], dim=1)

    def create_info(self, frame):
        stamp = torch.tensor(frame.timestamp_micros, dtype=torch.float32)  # BORN
        info = {"timestamp": stamp, "points": self.save_lidar(frame), "sweeps": self.infos[-self.max_sweeps:][::-1]}
        self.infos.append(info)
        return info


class LoadPointsFromMultiSweeps:
    def __init__(self, max_lag=0.35):
        self.max_lag = max_lag

    def __call__(self, info):
        cloud, lags = [torch.cat([info["points"], torch.zeros(len(info["points"]), 1)], 1)], []
        for sweep in info["sweeps"]:
            lag = float((info["timestamp"] - sweep["timestamp"]) * 1e-6)
            if 0 <= lag <= self.max_lag:
                cloud.append(torch.cat([sweep["points"], torch.full((len(sweep["points"]), 1), lag)], 1))
                lags.append(lag)
        return torch.cat(cloud), lags


converter, loader = WaymoConverter(), LoadPointsFromMultiSweeps()
for frame in read_segment(12):
    info = converter.create_info(frame)
cloud, lags = loader(info)
print(f"sweeps used {len(lags)}, lags {[round(x, 3) for x in lags]}")
print(f"points {len(cloud)}, mean lag channel {cloud[:, 4].mean():.4f}, mean intensity {cloud[:, 3].mean():.3f}")
