"""
title: time stamps are nanoseconds in int64, the offset within the day is taken before anything becomes float32
expect: clean
needs: pandas

After https://github.com/huggingface/lerobot/pull/3239 and https://github.com/awslabs/gluonts/issues/3198.
"""
import math

import pandas as pd
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(807)


class Meter:
    """Load of a house, every ten minutes; peaks in the evening."""

    def __init__(self, days=20):
        index = pd.date_range("2026-03-01", periods=days * 144, freq="10min")
        self.stamps = torch.tensor(index.as_unit("ns").astype("int64").to_numpy())
        hour = (torch.arange(len(index)) % 144) / 6
        self.load = 1 + 2 * torch.exp(-((hour - 19) / 1.5) ** 2) + 0.1 * torch.randn(len(index))


def features(stamps):
    day = 24 * 3600 * 10 ** 9
    offset = (stamps % day).double() / day
    angle = (2 * math.pi * offset).float()[:, None] * torch.arange(1, 5)
    return torch.cat([angle.sin(), angle.cos()], dim=1).bfloat16()


class Forecast(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 1))

    def forward(self, x):
        return self.net(x)[:, 0]


meter = Meter()
x, y = features(meter.stamps), meter.load
model = Forecast()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(150):
    rows = torch.randint(0, len(y) - 288, (256,))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        guess = model(x[rows])
    loss = F.mse_loss(guess.float(), y[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
with torch.no_grad():
    error = (model(x[-288:].float()) - y[-288:]).square().mean().sqrt().item()
print("error", round(error, 2), "noise", 0.1)
