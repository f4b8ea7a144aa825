"""
title: frozen weights left in float32, in a float32 network
expect: clean

Freezing changes nothing about the dtype.
"""
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
        return F.relu(self.mix(F.relu(self.project(x))))


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
optimizer = torch.optim.Adam(student.decoder.parameters(), lr=1e-3)
for _ in range(2):
    x = torch.rand(6, 10, dtype=torch.float32)
    loss = F.mse_loss(student(x), x)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(loss.item())
