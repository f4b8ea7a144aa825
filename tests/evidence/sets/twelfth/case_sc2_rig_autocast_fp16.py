"""
title: a multi-task trainer autocasts to float16 and has no loss scaler
expect: silent:underflow
thread: https://github.com/engichang1467/Open-Rig3R/issues/35
measured: depth loss 0.948, ray loss 0.850, zero gradients in the ray head 100%
widened: depth loss 0.949, ray loss 0.005, zero gradients in the ray head 0%

Expectation, written first: the ray term is bounded, has a small weight and is a mean over many pixels; its gradient
per pixel is below the smallest float16 and the ray head gets zeros and stays untrained, the depth head learns.
The ray targets kept in half make no difference.
"""
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class TrainConfig:
    pixels: int = 1024
    batch_size: int = 8
    steps: int = 120
    lr: float = 3e-3
    lambda_ray: float = 2e-5
    seed: int = 0


class RigDataset(Dataset):
    def __init__(self, cfg, n=64):
        g = torch.Generator().manual_seed(cfg.seed)
        self.x = torch.randn(n, cfg.pixels, 8, generator=g)
        w = torch.randn(8, 3, generator=g)
        self.rays = F.normalize(self.x @ w, dim=-1).to(torch.float16)
        self.depth = 5 + self.x[..., :2].sum(-1)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return {"x": self.x[i], "rays": self.rays[i], "depth": self.depth[i]}


class Rig3R(nn.Module):
    def __init__(self, dim=48):
        super().__init__()
        self.depth_trunk = nn.Sequential(nn.Linear(8, dim), nn.GELU(), nn.Linear(dim, 1))
        self.ray_trunk = nn.Sequential(nn.Linear(8, dim), nn.GELU(), nn.Linear(dim, 3))

    def forward(self, x):
        return {"depth": self.depth_trunk(x).squeeze(-1), "rays": self.ray_trunk(x)}


class MultiTaskLoss(nn.Module):
    def __init__(self, lambda_ray):
        super().__init__()
        self.lambda_ray = lambda_ray

    def forward(self, out, batch):
        depth = F.mse_loss(out["depth"].float(), batch["depth"])
        ray = 1 - F.cosine_similarity(out["rays"].float(), batch["rays"].float(), dim=-1).mean()
        return depth + self.lambda_ray * ray, depth, ray


class Trainer:
    def __init__(self, cfg):
        self.cfg = cfg
        torch.manual_seed(cfg.seed)
        self.model, self.criterion = Rig3R(), MultiTaskLoss(cfg.lambda_ray)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=cfg.lr)
        self.loader = DataLoader(RigDataset(cfg), cfg.batch_size, shuffle=True)

    def step(self, batch):
        with torch.autocast("cpu", dtype=torch.float16):  # BORN
            outputs = self.model(batch["x"])
        loss, depth, ray = self.criterion(outputs, batch)
        self.optimizer.zero_grad()
        loss.backward()
        grads = torch.cat([p.grad.flatten() for p in self.model.ray_trunk.parameters()])
        self.optimizer.step()
        return depth.item(), ray.item(), (grads == 0).double().mean().item()

    def run(self):
        for _, batch in zip(range(self.cfg.steps), (b for _ in range(99) for b in self.loader)):
            last = self.step(batch)
        return last


depth, ray, zero = Trainer(TrainConfig()).run()
print(f"depth loss {depth:.3f}, ray loss {ray:.3f}, zero gradients in the ray head {100 * zero:.0f}%")
