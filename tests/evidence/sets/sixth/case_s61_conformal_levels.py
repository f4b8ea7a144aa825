"""
title: the levels of a conformal forecaster are a float64 grid, the scores of the calibration set are float32
expect: collision

After https://github.com/openvinotoolkit/nncf/pull/2418 and https://github.com/ml-stat-Sustech/TorchCP/pull/48.
Right: the levels are made in the dtype of the scores.
"""
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(609)


@dataclass
class Report:
    coverages: np.ndarray = field(default_factory=lambda: np.linspace(0.5, 0.95, 4))

    def title(self):
        return ", ".join(f"{100 * c:.0f}%" for c in self.coverages)


class Levels:
    """A coverage of c needs the ceil((n + 1) c) / n quantile of n scores."""

    def __init__(self, report):
        self.report = report

    def for_scores(self, count):
        wanted = np.ceil((count + 1) * self.report.coverages) / count
        return torch.as_tensor(np.minimum(wanted, 1.0))  # BORN


class Conformal:
    def __init__(self, model, levels):
        self.model, self.levels = model, levels

    @torch.no_grad()
    def calibrate(self, past, future):
        scores = (self.model(past) - future).abs().amax(-1)
        self.widths = torch.quantile(scores, self.levels.for_scores(len(scores)))  # COLLIDES
        return self

    @torch.no_grad()
    def coverage(self, past, future):
        worst = (self.model(past) - future).abs().amax(-1)
        return (worst[:, None] <= self.widths).float().mean(0)


def windows(count, past=24, ahead=4):
    start = torch.rand(count, 1) * 50
    t = start + torch.arange(past + ahead) * 0.3
    series = torch.sin(t) + 0.1 * torch.randn(count, past + ahead)
    return series[:, :past], series[:, past:]


model = nn.Sequential(nn.Linear(24, 32), nn.ReLU(), nn.Linear(32, 4))
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for step in range(100):
    past, future = windows(64)
    loss = F.mse_loss(model(past), future)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
report = Report()
conformal = Conformal(model, Levels(report)).calibrate(*windows(200))
print(report.title(), [round(v, 2) for v in conformal.coverage(*windows(400)).tolist()])
