"""
title: rows stored in half by numpy reach a float32 network as they are
expect: collision

All weights are float32, frozen or not. The shard was stored in float16 to save room and nothing widens it on its way
through centring and scaling.
"""
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


def freeze(module):
    module.eval()
    for parameter in module.parameters():
        parameter.requires_grad_(False)


class Encoder(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.project = nn.Linear(10, width)
        self.mix = nn.Linear(width, width)

    def forward(self, x):
        x = (x - x.mean(dim=-1, keepdim=True)) / x.std(dim=-1, keepdim=True)
        return F.relu(self.mix(F.relu(self.project(x))))  # COLLIDES


class Student(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder(12)
        self.decoder = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    def forward(self, x):
        return self.decoder(self.encoder(x))


torch.manual_seed(0)
student = Student()
freeze(student.encoder)
shard = np.random.default_rng(0).random((12, 10)).astype(np.float16)
optimizer = torch.optim.Adam(student.decoder.parameters(), lr=1e-3)
for rows in np.split(shard, 2):
    x = torch.from_numpy(rows)  # BORN
    loss = F.mse_loss(student(x), x)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(loss.item())
