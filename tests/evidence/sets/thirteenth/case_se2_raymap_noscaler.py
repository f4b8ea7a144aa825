"""
title: a float16 autocast without a scaler leaves one of two heads untrained
expect: silent:zero-gradient|underflow|plan
thread: https://github.com/engichang1467/Open-Rig3R/issues/35
measured: depth loss 208 to 128, ray loss 0.333 to 0.452, last ray head gradient 0.0e+00
widened: depth loss 208 to 128, ray loss 0.333 to 0.035, last ray head gradient 2.3e-05

Expectation, written first: the ray loss is bounded, weighted by 5e-4 and averaged over a hundred thousand
numbers; its gradients are below the smallest float16 and are zero at the head's output, while the depth head, whose
errors are tens of metres, learns. The innocent suspect is the position table in float16: no gradient passes through it.
"""
import torch
import torch.nn.functional as F
from torch import nn


class PositionTable(nn.Module):
    def __init__(self, side, width):
        super().__init__()
        axis = torch.linspace(-1, 1, side)
        y, x = torch.meshgrid(axis, axis, indexing="ij")
        waves = torch.stack([f(k * a) for k in range(1, width // 4 + 1) for a in (x, y) for f in (torch.sin, torch.cos)], -1)
        self.register_buffer("table", waves.view(-1, waves.shape[-1]).half())

    def forward(self):
        return self.table.float()


class Rig(nn.Module):
    def __init__(self, side=96, width=16):
        super().__init__()
        self.position = PositionTable(side, width)
        self.trunk = nn.Linear(width + 3, 24)
        self.pointmap, self.raymap = nn.Linear(24, 3), nn.Linear(24, 3)

    def forward(self, images):
        p = self.position().expand(len(images), -1, -1)
        h = F.gelu(self.trunk(torch.cat([images, p], -1)))
        return self.pointmap(h), self.raymap(h)


class MultiTaskLoss(nn.Module):
    def __init__(self, ray_weight=5e-4):
        super().__init__()
        self.ray_weight = ray_weight

    def forward(self, outputs, targets):
        points, rays = outputs
        depth = (points.float() - targets["points"]).square().mean()
        ray = (torch.tanh(rays.float()) - targets["rays"]).square().mean()
        return depth + self.ray_weight * ray, depth.item(), ray.item()


def scenes(gen, side=96, n=4):
    axis = torch.linspace(-1, 1, side)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    rays = F.normalize(torch.stack([x, y, torch.ones_like(x)], -1).view(-1, 3), dim=-1).expand(n, -1, -1)
    images = torch.rand(n, side * side, 3, generator=gen)
    return images, {"points": rays * 25, "rays": rays}


def train_step(model, criterion, optimizer, images, targets):
    with torch.autocast("cpu", dtype=torch.float16):  # BORN
        outputs = model(images)
    loss, depth, ray = criterion(outputs, targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return depth, ray, model.raymap.weight.grad.abs().max().item()


def main(steps=20):
    torch.manual_seed(22)
    model, criterion = Rig(), MultiTaskLoss()
    heads = list(model.raymap.parameters())
    rest = [p for n, p in model.named_parameters() if "raymap" not in n]
    optimizer = torch.optim.Adam([{"params": rest, "lr": 1e-2}, {"params": heads, "lr": 3e-2}])
    images, targets = scenes(torch.Generator().manual_seed(23))
    history = [train_step(model, criterion, optimizer, images, targets) for _ in range(steps)]
    print(f"depth loss {history[0][0]:.0f} to {history[-1][0]:.0f}, ray loss {history[0][1]:.3f} to {history[-1][1]:.3f}, last ray head gradient {history[-1][2]:.1e}")


main()
