"""
title: the learning rate is a tensor of the model's bfloat16, a decay of a seventh of a percent per step rounds away
expect: silent:lost-update|precision-loss|downcast
fix_at: 22

After https://github.com/hiyouga/LlamaFactory/issues/1220, https://github.com/QwenLM/Qwen3/issues/577 and https://github.com/pytorch/pytorch/pull/106916.
Right: the rate is a float32 tensor, or a number.
"""
from dataclasses import dataclass

import torch
from torch import nn

torch.manual_seed(712)


@dataclass
class Settings:
    rate: float = 0.12
    gamma: float = 0.9985
    steps: int = 1500
    dtype: torch.dtype = torch.bfloat16


class Noisy(nn.Module):
    """Least squares with loud targets: only a falling rate comes close."""

    def __init__(self, features=10, dtype=torch.float32):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(features, dtype=dtype))

    def forward(self, x):
        return x @ self.weight


def rate(settings):
    """A tensor, so that a captured graph sees the new values."""
    return torch.tensor(settings.rate, dtype=settings.dtype)  # BORN


def train(settings):
    truth = torch.randn(10)
    model = Noisy()
    optimizer = torch.optim.SGD(model.parameters(), lr=rate(settings))
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, settings.gamma)
    for step in range(settings.steps):
        x = torch.randn(8, 10)
        y = x @ truth + 2 * torch.randn(8)
        loss = (model(x) - y).square().mean() / 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
    error = (model.weight.detach() - truth).norm().item()
    return error, float(optimizer.param_groups[0]["lr"]), settings.rate * settings.gamma ** settings.steps


error, last, planned = train(Settings())
print("error", round(error, 3), "rate at the end", round(last, 4), "planned", round(planned, 4))
