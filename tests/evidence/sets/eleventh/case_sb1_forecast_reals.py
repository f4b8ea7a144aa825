"""
title: a forecasting data set whose real columns are only the time index yields integers
expect: collision
thread: https://github.com/sktime/pytorch-forecasting/issues/1930
fix_at: 20, 23, 35, 46, 59

Expectation, written first: one block of columns becomes one array, and as no scaler is set the integer time index
stays int64; the encoder's linear layer gets whole numbers.
"""
import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class TimeSeriesWindows(Dataset):
    def __init__(self, frame, target, known_reals, encoder=4, horizon=2, scalers=None):
        self.encoder, self.horizon = encoder, horizon
        frame = frame.copy()
        for name, (mean, std) in (scalers or {}).items():
            frame[name] = (frame[name] - mean) / std
        self.reals = torch.tensor(frame[known_reals].to_numpy())  # BORN
        self.target = torch.tensor(frame[target].to_numpy(), dtype=torch.float32)
        groups = frame.groupby("group").indices.values()
        length = encoder + horizon
        self.starts = [g[0] + i for g in groups for i in range(len(g) - length + 1)]

    def __len__(self):
        return len(self.starts)

    def __getitem__(self, i):
        s = self.starts[i]
        mid = s + self.encoder
        x = {"encoder_cont": self.reals[s:mid], "decoder_cont": self.reals[mid:mid + self.horizon]}
        return x, self.target[mid:mid + self.horizon]


class Forecaster(nn.Module):
    def __init__(self, reals, hidden=8):
        super().__init__()
        self.encode = nn.Linear(reals, hidden)
        self.decode = nn.Linear(reals + hidden, 1)

    def forward(self, x):
        past = self.encode(x["encoder_cont"]).tanh().mean(1)  # COLLIDES
        future = x["decoder_cont"]
        context = past[:, None].expand(-1, future.shape[1], -1)
        return self.decode(torch.cat([context, future], -1)).squeeze(-1)


def frame(groups=2, steps=12):
    rows = [(g, t, float(np.sin(t / 3) + g)) for g in range(groups) for t in range(steps)]
    return pd.DataFrame(rows, columns=["group", "time_idx", "value"])


if __name__ == "__main__":
    torch.manual_seed(0)
    data = TimeSeriesWindows(frame(), "value", ["time_idx"])
    model = Forecaster(reals=1)
    opt = torch.optim.SGD(model.parameters(), 1e-3)
    total = 0.0
    for x, y in DataLoader(data, batch_size=8):
        loss = (model(x) - y).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item()
    print(f"{total:.3f}")
