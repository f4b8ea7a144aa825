"""
title: training under float16 autocast without a gradient scaler while one task's loss is tiny
expect: silent:underflow|zero-gradient|plan|gradient-dtype
thread: https://github.com/engichang1467/Open-Rig3R/issues/35
measured: ray loss 0.906 -> 0.906, depth loss 77.78
widened: ray loss 0.906 -> 0.031, depth loss 77.76

Expectation, written first: the ray task's gradients of less than 1e-8 per pixel are below the smallest float16 number and
vanish in the backward pass, so that head stays as it was although its loss is in the sum. The validity masks in
float16 are zeros and ones, and the task weights in float16 are powers of two.
"""
import torch
from torch import nn


class Rig(nn.Module):
    """one shared input, a depth head and a ray head"""

    def __init__(self, width=24):
        super().__init__()
        self.depth = nn.Sequential(nn.Linear(width, 32), nn.ReLU(), nn.Linear(32, 1))
        self.ray = nn.Sequential(nn.Linear(width, 32), nn.ReLU(), nn.Linear(32, 3))

    def forward(self, x):
        return self.depth(x), self.ray(x)


class MultiTaskLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("weight", torch.tensor([1.0, 2.0 ** -18], dtype=torch.float16))

    def forward(self, depth, ray, batch):
        valid = batch["valid"].float()
        d = ((depth.squeeze(-1).float() - batch["depth"]).square() * valid).sum() / valid.sum()
        r = ((1 - nn.functional.cosine_similarity(ray.float(), batch["ray"], dim=-1)) * valid).mean()
        return self.weight[0].float() * d + self.weight[1].float() * r, d, r


class Scenes:
    def __init__(self, pixels, seed):
        gen = torch.Generator().manual_seed(seed)
        maker = torch.Generator().manual_seed(77)
        to_depth, to_ray = torch.randn(24, generator=maker), torch.randn(24, 3, generator=maker)
        self.x = torch.randn(pixels, 24, generator=gen)
        self.batch = {"depth": self.x @ to_depth + 12, "ray": self.x @ to_ray,
                      "valid": (torch.rand(pixels, generator=gen) < 0.9).to(torch.float16)}


class Trainer:
    def __init__(self, model, amp_dtype=torch.float16):  # BORN
        self.model, self.amp_dtype = model, amp_dtype
        self.loss = MultiTaskLoss()
        self.optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

    def run(self, scenes):
        with torch.autocast("cpu", dtype=self.amp_dtype):  # BORN
            depth, ray = self.model(scenes.x)
        return self.loss(depth, ray, scenes.batch)

    def step(self, scenes):
        self.optimizer.zero_grad()
        total, _, _ = self.run(scenes)
        total.backward()  # BORN
        self.optimizer.step()


def main():
    torch.manual_seed(0)
    trainer, scenes = Trainer(Rig()), Scenes(8192, seed=1)
    with torch.no_grad():
        _, _, before = trainer.run(scenes)
    for _ in range(60):
        trainer.step(scenes)
    with torch.no_grad():
        _, depth, ray = trainer.run(scenes)
    print(f"ray loss {before:.3f} -> {ray:.3f}, depth loss {depth:.2f}")


main()
