"""
title: the Huber loss of a bfloat16 prediction and a float32 target is refused when it goes back
expect: collision
thread: https://github.com/67372a/LoRA_Easy_Training_Scripts/issues/8
fix_at: 48, 60, 66, 67, 68

Expectation, written first: the forward of the loss takes the two dtypes, its backward does not. The prediction is
bfloat16 by choice, the target is float32; every other loss of this trainer casts the prediction up first, the
Huber branch does not. Cause: the line of the Huber branch that hands over prediction and target as they come.
"""
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Args:
    loss_type: str = "huber"
    huber_c: float = 0.1
    mixed_precision: str = "bf16"
    steps: int = 4

    @property
    def weight_dtype(self):
        return {"bf16": torch.bfloat16, "no": torch.float32}[self.mixed_precision]


class LoRALinear(nn.Module):
    def __init__(self, base, rank=4):
        super().__init__()
        self.base = base
        kind = dict(bias=False, dtype=base.weight.dtype)
        self.down = nn.Linear(base.in_features, rank, **kind)
        self.up = nn.Linear(rank, base.out_features, **kind)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


def conditional_loss(pred, target, args):
    if args.loss_type == "l2":
        return F.mse_loss(pred.float(), target.float(), reduction="none")
    if args.loss_type == "l1":
        return F.l1_loss(pred.float(), target.float(), reduction="none")
    return F.huber_loss(pred, target, reduction="none", delta=args.huber_c)  # BORN


class Trainer:
    def __init__(self, args):
        self.args = args
        base = nn.Linear(24, 24).to(args.weight_dtype).requires_grad_(False)
        self.unet = LoRALinear(base)
        params = [p for p in self.unet.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(params, lr=1e-2)

    def noise(self, latents, gen):
        noise = torch.randn(latents.shape, generator=gen)
        level = torch.rand(latents.shape[0], 1, generator=gen)
        noisy = (1 - level) * latents + level * noise
        return noisy.to(self.args.weight_dtype), noise - latents

    def process_batch(self, latents, gen):
        noisy, target = self.noise(latents, gen)
        pred = self.unet(noisy)
        return conditional_loss(pred, target, self.args).mean(-1).mean()

    def train(self, gen):
        latents = torch.randn(32, 24, generator=gen)
        for step in range(self.args.steps):
            loss = self.process_batch(latents, gen)
            loss.backward()  # COLLIDES
            self.optimizer.step()
            self.optimizer.zero_grad()
            print(f"step {step} loss {loss.item():.3f}")


if __name__ == "__main__":
    torch.manual_seed(0)
    Trainer(Args()).train(torch.Generator().manual_seed(0))
