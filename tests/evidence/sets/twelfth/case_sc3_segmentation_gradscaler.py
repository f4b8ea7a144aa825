"""
title: a small U-Net in half-precision autocast with a GradScaler, unscaled clipping and a float32 Dice loss
expect: clean
thread: https://github.com/milesial/Pytorch-UNet/pull/470
measured: loss 1.369 (float32 1.368), Dice 0.834 (float32 0.853)

Expectation, written first: the loss is scaled before backward and gradients are unscaled before they are clipped; the
Dice sums and their small epsilon are float32. Nothing is lost against a float32 run.
"""
from argparse import Namespace

import torch
import torch.nn.functional as F
from torch import nn


class DoubleConv(nn.Sequential):
    def __init__(self, cin, cout):
        super().__init__(
            nn.Conv2d(cin, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True),
            nn.Conv2d(cout, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True),
        )


class UNet(nn.Module):
    def __init__(self, classes=1):
        super().__init__()
        self.inc, self.down, self.bottom = DoubleConv(3, 8), DoubleConv(8, 16), DoubleConv(16, 16)
        self.up1, self.up2, self.outc = DoubleConv(32, 8), DoubleConv(16, 8), nn.Conv2d(8, classes, 1)

    def forward(self, x):
        a = self.inc(x)
        b = self.down(F.max_pool2d(a, 2))
        c = self.bottom(F.max_pool2d(b, 2))
        c = self.up1(torch.cat([b, F.interpolate(c, scale_factor=2.0)], dim=1))
        c = self.up2(torch.cat([a, F.interpolate(c, scale_factor=2.0)], dim=1))
        return self.outc(c)


def dice_loss(logits, target, eps=1e-6):
    """in float32: the sums of a whole mask would lose their last digits in half"""
    p, t = logits.float().sigmoid().flatten(1), target.float().flatten(1)
    inter, total = (p * t).sum(1), p.sum(1) + t.sum(1)
    return (1 - (2 * inter + eps) / (total + eps)).mean()


class Blobs(torch.utils.data.Dataset):
    def __init__(self, n, size=32):
        g = torch.Generator().manual_seed(0)
        y, x = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
        centre, radius = torch.randint(8, 24, (n, 2, 1, 1), generator=g), torch.randint(4, 8, (n, 1, 1), generator=g)
        self.masks = (((y - centre[:, 0]) ** 2 + (x - centre[:, 1]) ** 2) < radius**2).float()[:, None]
        self.images = 0.6 * self.masks + 0.4 * torch.rand(n, 3, size, size, generator=g)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return {"image": self.images[i], "mask": self.masks[i]}


class Trainer:
    def __init__(self, args):
        torch.manual_seed(args.seed)
        self.args, self.model = args, UNet()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=args.lr, weight_decay=1e-2)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12, enabled=args.amp)

    def step(self, batch):
        with torch.autocast("cpu", dtype=torch.float16, enabled=self.args.amp):
            logits = self.model(batch["image"])
        logits = logits.float()
        loss = F.binary_cross_entropy_with_logits(logits, batch["mask"]) + dice_loss(logits, batch["mask"])
        self.optimizer.zero_grad(set_to_none=True)
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimizer)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.args.gradient_clipping)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.item()

    @torch.no_grad()
    def evaluate(self, loader):
        self.model.eval()
        scores = []
        for batch in loader:
            with torch.autocast("cpu", dtype=torch.float16, enabled=self.args.amp):
                logits = self.model(batch["image"])
            hard = (logits.float() > 0).double()
            inter, total = (hard * batch["mask"]).sum((1, 2, 3)), (hard + batch["mask"]).sum((1, 2, 3))
            scores.append(2 * inter / total.clamp(min=1))
        self.model.train()
        return torch.cat(scores).mean().item()


def run(amp):
    trainer = Trainer(Namespace(seed=0, lr=1e-3, amp=amp, gradient_clipping=1.0, epochs=6))
    loader = torch.utils.data.DataLoader(Blobs(24), batch_size=6)
    losses = [trainer.step(b) for _ in range(trainer.args.epochs) for b in loader]
    return losses, trainer.evaluate(loader)


half, full = run(True), run(False)
assert abs(half[0][-1] - full[0][-1]) < 0.05 and abs(half[1] - full[1]) < 0.05, (half, full)
print(f"loss {half[0][-1]:.3f} (float32 {full[0][-1]:.3f}), Dice {half[1]:.3f} (float32 {full[1]:.3f})")
