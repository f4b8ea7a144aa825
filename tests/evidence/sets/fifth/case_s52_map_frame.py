"""
title: tracks in map coordinates are turned to float32 before their origin is taken away
expect: silent:downcast|precision-loss|round-trip
fix_at: 37, 38

After https://github.com/rsasaki0109/lidar_localization_ros2/pull/92 and https://github.com/ubarsc/pylidar/issues/3.
Right: subtract in float64, then go to float32.
"""
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(209)


def drive(seed, count=20, rate=10.0):
    """Eastings and northings of one vehicle, ten a second."""
    make = np.random.default_rng(seed)
    speed, heading, turn = make.uniform(3, 12), make.uniform(0, 6.28), make.normal(0, 0.2)
    angles = heading + turn * np.arange(count) / rate
    steps = speed / rate * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    return np.array([412_345.25, 5_572_094.5]) + np.cumsum(steps, axis=0)


class Tracks(Dataset):
    def __init__(self, seeds, past=10):
        self.past = past
        self.tracks = [torch.from_numpy(drive(seed)) for seed in seeds]

    def __len__(self):
        return len(self.tracks)

    def __getitem__(self, index):
        track = self.tracks[index].float()  # BORN
        local = track - track[self.past - 1]
        return local[:self.past].flatten(), local[self.past:].flatten()


class Predictor(nn.Module):
    def __init__(self, past=10, future=10, hidden=64):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2 * past, hidden), nn.GELU(), nn.Linear(hidden, 2 * future))
        nn.init.zeros_(self.net[2].weight)

    def forward(self, x):
        now = x.view(len(x), -1, 2)
        pace = now[:, -1] - now[:, -2]
        ahead = torch.arange(1, 11)[None, :, None] * pace[:, None]
        return ahead.flatten(1) + self.net(x)


def train(epochs=8):
    model = Predictor()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for _ in range(epochs):
        for past, future in DataLoader(Tracks(range(256)), batch_size=32, shuffle=True):
            loss = F.smooth_l1_loss(model(past), future)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return model.eval()


model = train()
with torch.no_grad():
    held = Tracks(range(1000, 1100))
    exact = torch.stack([(t - t[9])[10:].flatten() for t in held.tracks])
    found = torch.stack([model(held[i][0][None])[0] for i in range(len(held))])
    seen = torch.stack([held[i][0] for i in range(len(held))])
    truth = torch.stack([(t - t[9])[:10].flatten() for t in held.tracks])
print("metres off in the input", round((seen - truth).abs().mean().item(), 4), "in the forecast", round((found - exact).abs().mean().item(), 3))
