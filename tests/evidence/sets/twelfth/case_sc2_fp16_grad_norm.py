"""
title: a sharded clip_grad_norm squares the local gradients in the dtype they have
expect: silent:overflow
thread: https://github.com/NVIDIA-NeMo/Automodel/pull/825
measured: loss 91133 -> 91133, first norm inf
widened: loss 91133 -> 15, first norm 819

Expectation, written first: a gradient of a few hundred squared leaves float16, the total norm is inf, the clipping
coefficient zero; all gradients become zero and the weights never change, with no error. The loss itself and the float16
weights with their large learning rate would do.
"""
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class StepConfig:
    max_grad_norm: float = 20.0
    lr: float = 0.05
    steps: int = 250
    stages: int = 2


class Stage(nn.Module):
    """one pipeline stage"""

    def __init__(self, dim_in, dim_out, last):
        super().__init__()
        self.proj, self.last = nn.Linear(dim_in, dim_out), last

    def forward(self, x):
        return self.proj(x) if self.last else torch.tanh(self.proj(x))


class Pipeline(nn.Module):
    def __init__(self, cfg, dim=24):
        super().__init__()
        self.parts = nn.ModuleList(
            Stage(8 if i == 0 else dim, 1 if i == cfg.stages - 1 else dim, i == cfg.stages - 1) for i in range(cfg.stages)
        )

    def forward(self, x):
        for part in self.parts:
            x = part(x)
        return x.squeeze(-1)


def local_sum_of_squares(stage):
    total = torch.zeros(())
    for p in stage.parameters():
        total = total + p.grad.pow(2).sum()  # BORN
    return total


def clip_grad_norm(parts, max_norm):
    norms = torch.stack([local_sum_of_squares(p) for p in parts])
    total = norms.sum().sqrt()  # all-reduced over the pipeline mesh in the real one
    coef = (max_norm / (total + 1e-6)).clamp(max=1.0)
    for part in parts:
        for p in part.parameters():
            p.grad.mul_(coef.to(p.grad.dtype))
    return total.item()


class Recipe:
    def __init__(self, cfg):
        self.cfg = cfg
        torch.manual_seed(1)
        self.model = Pipeline(cfg).to(torch.float16)
        self.opt = torch.optim.SGD(self.model.parameters(), lr=cfg.lr)

    def train(self, x, y):
        history = []
        for _ in range(self.cfg.steps):
            loss = F.mse_loss(self.model(x.half()).float(), y)
            self.opt.zero_grad()
            loss.backward()
            norm = clip_grad_norm(self.model.parts, self.cfg.max_grad_norm)
            self.opt.step()
            history.append((loss.item(), norm))
        return history


gen = torch.Generator().manual_seed(2)
x = torch.randn(128, 8, generator=gen)
y = 300 + 10 * x[:, 0]
history = Recipe(StepConfig()).train(x, y)
print(f"loss {history[0][0]:.0f} -> {history[-1][0]:.0f}, first norm {history[0][1]:.0f}")
