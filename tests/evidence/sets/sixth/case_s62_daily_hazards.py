"""
title: one minus a small daily hazard is one in autocast's bfloat16, survival curves stay flat
expect: silent:precision-loss|downcast|cancellation

After https://github.com/KatherLab/MediSwarm/pull/438 and https://github.com/SauersML/gam/issues/964.
Right: hazards are widened to float32 before they are taken from one.
"""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(708)


class Hazards(nn.Module):
    """A hazard for each of 360 days from a patient's covariates."""

    def __init__(self, features=6, days=360):
        super().__init__()
        self.days = days
        self.risk = nn.Linear(features, 1)
        self.base = nn.Parameter(torch.full((days,), -6.0))

    def forward(self, x):
        return torch.sigmoid(self.risk(x) + self.base.to(x.dtype))


def survival(hazard):
    alive = 1 - hazard  # BORN
    return alive.float().cumprod(-1)


def patients(count, days=360):
    x = torch.randn(count, 6)
    hazard = torch.sigmoid(x[:, :1] - 6.2).expand(-1, days)
    died = torch.rand(count, days) < hazard
    first = torch.where(died.any(1), died.float().argmax(1), days)
    return x, first


def loss_of(logits, first):
    day = torch.arange(logits.shape[1])
    at_risk, event = (day <= first[:, None]).float(), (day == first[:, None]).float()
    return (F.binary_cross_entropy_with_logits(logits, event, reduction="none") * at_risk).sum() / at_risk.sum()


model = Hazards()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-2)
for step in range(60):
    x, first = patients(128)
    loss = loss_of(model.risk(x) + model.base, first)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
x, first = patients(600)
with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
    curve = survival(model(x.bfloat16()))
alive = (first[:, None] > torch.arange(360)).float()
brier = (curve - alive).square().mean().item()
print("alive at the end", round(curve[:, -1].mean().item(), 3), "truth", round(alive[:, -1].mean().item(), 3), "brier", round(brier, 4))
