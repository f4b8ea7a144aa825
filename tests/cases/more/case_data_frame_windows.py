"""
title: windows of a table of prices are float64, as pandas makes them
expect: collision
needs: pandas

Percentage changes of a frame are float64 whatever one does not say. A generator cuts them into windows and the
recurrent network, plain float32, gets them two functions later.
"""
import pandas as pd
import torch
from torch import nn


def table():
    days = pd.date_range("2024-01-01", periods=40)
    close = pd.Series(range(100, 140), index=days).where(lambda s: s % 3 > 0).ffill().bfill()
    frame = pd.DataFrame({"close": close, "volume": close.rolling(3, min_periods=1).sum()})
    return frame.pct_change().fillna(0.0)


def windows(frame, length, step):
    values = torch.tensor(frame[["close", "volume"]].values)  # BORN
    for start in range(0, len(values) - length, step):
        yield values[start:start + length], values[start + length, 0]


def batches(samples, size):
    samples = list(samples)
    for start in range(0, len(samples), size):
        inputs, targets = zip(*samples[start:start + size])
        yield torch.stack(inputs), torch.stack(targets)


class Forecast(nn.Module):
    def __init__(self, columns, width):
        super().__init__()
        self.gru = nn.GRU(columns, width, batch_first=True)
        self.out = nn.Linear(width, 1)

    def forward(self, window):
        _, state = self.gru(window - window.mean(dim=1, keepdim=True))  # COLLIDES
        return self.out(state[-1]).squeeze(-1)


torch.manual_seed(0)
forecast = Forecast(columns=2, width=8)
optimizer = torch.optim.Adam(forecast.parameters(), lr=1e-2)
for window, target in batches(windows(table(), length=6, step=2), size=8):
    loss = (forecast(window) - target).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("loss", round(loss.item(), 4))
