"""
title: the first steps are skipped with "gradient overflow, reducing loss scale"
expect: clean
thread: https://github.com/NoamRosenberg/autodeeplab/issues/12
measured: loss first 1.1 last 0.1 pixel accuracy 0.99 weights finite True
suspect: 56 meant (the dynamic scale starts too high by design, the overflowed steps are not applied)

Expectation, written first: the scaler starts at 2**24, float16 gradients overflow, the steps are skipped and the scale
halved until it fits; this is how dynamic loss scaling works and was answered so in the thread. The weights never see a
non-finite gradient, and the training ends at the loss of the float32 run.
"""
from dataclasses import dataclass

import torch
from torch import nn
import torch.nn.functional as F


@dataclass
class Config:
    half_precision: bool = True
    loss_scale_init: float = 2.0 ** 24
    lr: float = 0.2
    steps: int = 45


class Cell(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, 3, padding=1)

    def forward(self, x):
        return F.relu(self.conv(x))


class AutoDeeplab(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.cells = nn.Sequential(Cell(3, 8), Cell(8, 8))
        self.decoder = nn.Conv2d(8, classes, 1)

    def forward(self, x):
        return self.decoder(self.cells(x))


def batch(generator, n=4, size=12):
    target = torch.randint(0, 3, (n, size // 4, size // 4), generator=generator)
    target = target.repeat_interleave(4, 1).repeat_interleave(4, 2)
    image = F.one_hot(target, 3).permute(0, 3, 1, 2).float()
    return image + 0.1 * torch.randn(image.shape, generator=generator), target


def train(config):
    model = AutoDeeplab(3)
    optimizer = torch.optim.SGD(model.parameters(), lr=config.lr)
    scaler = torch.amp.GradScaler("cpu", init_scale=config.loss_scale_init, enabled=config.half_precision)
    generator = torch.Generator().manual_seed(12)
    skipped, losses = 0, []
    for _ in range(config.steps):
        image, target = batch(generator)
        with torch.autocast("cpu", dtype=torch.float16, enabled=config.half_precision):
            output = model(image)
        loss = F.cross_entropy(output.float(), target)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        before = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        skipped += scaler.get_scale() < before
        losses.append(loss.item())
    return model, losses, skipped


def pixel_accuracy(model):
    image, target = batch(torch.Generator().manual_seed(99), n=16)
    with torch.no_grad():
        return (model(image).argmax(1) == target).float().mean().item()


def main():
    torch.manual_seed(12)
    model, losses, skipped = train(Config())
    finite = all(p.isfinite().all() for p in model.parameters())
    print(f"loss first {losses[0]:.1f} last {losses[-1]:.1f} pixel accuracy {pixel_accuracy(model):.2f} weights finite {finite}")


if __name__ == "__main__":
    main()
