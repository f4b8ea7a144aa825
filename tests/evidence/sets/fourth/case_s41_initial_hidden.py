"""
title: a recurrent forecaster in bfloat16 is given an initial hidden state in the default dtype
expect: collision
fix_at: 32

After https://github.com/KimMeen/Time-LLM/issues/3 (a forecaster cast to bfloat16 as a whole) and
https://github.com/pytorch/pytorch/issues/88136 (the states of a recurrent net in bfloat16).
Right: build the initial state in the dtype of the input.
"""
import math

import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(11)


class Encoder(nn.Module):
    def __init__(self, inputs, hidden, layers):
        super().__init__()
        self.hidden, self.layers = hidden, layers
        self.norm = nn.LayerNorm(inputs)
        self.gru = nn.GRU(inputs, hidden, layers, batch_first=True)

    def init_state(self, batch):
        return torch.zeros(self.layers, batch, self.hidden)  # BORN

    def forward(self, x, state=None):
        if state is None:
            state = self.init_state(x.shape[0])
        return self.gru(self.norm(x), state)  # COLLIDES


class Forecaster(nn.Module):
    def __init__(self, inputs=3, hidden=16, horizon=4):
        super().__init__()
        self.encoder = Encoder(inputs, hidden, 2)
        self.head = nn.Linear(hidden, horizon)

    def forward(self, x):
        out, _ = self.encoder(x)
        return self.head(out[:, -1])


def windows(length=160, past=24, horizon=4):
    t = torch.arange(length).float()
    series = torch.stack([torch.sin(2 * math.pi * t / p) for p in (12, 24, 7)], dim=1) + 0.1 * torch.randn(length, 3)
    starts = range(length - past - horizon)
    x = torch.stack([series[s:s + past] for s in starts])
    y = torch.stack([series[s + past:s + past + horizon, 0] for s in starts])
    return TensorDataset(x.to(torch.bfloat16), y)


model = Forecaster().to(torch.bfloat16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in DataLoader(windows(), batch_size=44, shuffle=True):
        loss = F.mse_loss(model(x).float(), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, round(loss.item(), 3))
