"""
title: a pointmap network is trained under float16 autocast without a loss scale
expect: silent:underflow|zero-gradient|gradient-dtype|plan
thread: https://github.com/engichang1467/Open-Rig3R/issues/35
measured: loss 93% of the first, zero gradients 100%
widened: loss 0% of the first, zero gradients 0%

Expectation, written first: the loss is a mean over half a million points, so the gradient of each is below the smallest
float16 number and the backward pass hands on zeros; the loss does not move. The intrinsics are brought to bfloat16, but
are ones and halves.
"""
import torch
from torch import nn


class PointmapHead(nn.Module):
    def __init__(self, width=8, points=4096):
        super().__init__()
        self.to_points = nn.Linear(width, points)
        nn.init.zeros_(self.to_points.weight)
        nn.init.zeros_(self.to_points.bias)

    def forward(self, features, intrinsics):
        return self.to_points(features) * intrinsics


class Scenes:
    def __init__(self, width=8, points=4096, batch=128, seed=0):
        self.gen = torch.Generator().manual_seed(seed)
        self.truth = 0.0004 * torch.randn(width, points, generator=self.gen)
        self.batch_size = batch

    def batch(self):
        features = torch.randn(self.batch_size, len(self.truth), generator=self.gen)
        intrinsics = torch.full((self.batch_size, 1), 0.5)
        intrinsics[::2] = 1.0
        return features, intrinsics.to(torch.bfloat16).float(), features @ self.truth * intrinsics


class Trainer:
    def __init__(self, lr):
        torch.manual_seed(0)
        self.model = PointmapHead()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=lr, momentum=0.5)

    def step(self, features, intrinsics, target):
        with torch.autocast("cpu", dtype=torch.float16):  # BORN
            points = self.model(features, intrinsics)
        loss = (points.float() - target).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        zero = (self.model.to_points.weight.grad == 0).float().mean().item()
        self.optimizer.step()
        return loss.item(), zero


def main():
    scenes, trainer = Scenes(), Trainer(lr=600.0)
    losses, zeros = [], []
    for _ in range(10):
        loss, zero = trainer.step(*scenes.batch())
        losses.append(loss)
        zeros.append(zero)
    print(f"loss {100 * losses[-1] / losses[0]:.0f}% of the first, zero gradients {100 * sum(zeros) / len(zeros):.0f}%")


main()
