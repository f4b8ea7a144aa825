"""
title: a detector is trained in float16 with a dynamic loss scale in place of a fixed one
expect: clean
thread: https://github.com/open-mmlab/mmdetection/issues/3690
measured: boxes with an overlap above one half 99%

Expectation, written first: the scaler lifts the gradients clear of the bottom of float16 and would skip a step that
overflows; the weights are float32, the small gradients survive and the detector learns as in single precision.
"""
import torch
from torch import nn


class Detector(nn.Module):
    """where on a line is the bump"""

    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(width, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.box = nn.Linear(64, 2)

    def forward(self, x):
        return self.box(self.body(x))


class Signals:
    def __init__(self, width, gen):
        self.grid, self.gen = torch.linspace(0, 1, width), gen

    def draw(self, n):
        centre = 0.2 + 0.6 * torch.rand(n, 1, generator=self.gen)
        size = 0.05 + 0.1 * torch.rand(n, 1, generator=self.gen)
        x = ((self.grid - centre).abs() < size).float()
        return x + 0.05 * torch.randn(x.shape, generator=self.gen), torch.cat([centre, size], -1)


class Fp16Hook:
    def __init__(self, model, lr, start=2.0**16, dtype=torch.float16):
        self.model = model
        self.dtype = dtype
        self.opt = torch.optim.Adam(model.parameters(), lr=lr)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=start, growth_interval=100)

    def step(self, x, y):
        with torch.autocast("cpu", dtype=self.dtype):
            out = self.model(x)
        loss = nn.functional.smooth_l1_loss(out.float(), y)
        self.opt.zero_grad()
        self.scaler.scale(loss).backward()
        self.scaler.step(self.opt)
        self.scaler.update()


def iou(a, b):
    low = torch.maximum(a[:, 0] - a[:, 1], b[:, 0] - b[:, 1])
    high = torch.minimum(a[:, 0] + a[:, 1], b[:, 0] + b[:, 1])
    both = (high - low).clamp(min=0)
    return both / (2 * a[:, 1].abs() + 2 * b[:, 1] - both).clamp(min=1e-6)


def main():
    torch.manual_seed(8)
    signals = Signals(64, torch.Generator().manual_seed(8))
    model = Detector(64)
    hook = Fp16Hook(model, lr=2e-3)
    for _ in range(300):
        hook.step(*signals.draw(64))
    x, y = signals.draw(1000)
    with torch.no_grad():
        overlap = iou(model(x), y)
    print(f"boxes with an overlap above one half {100 * (overlap > 0.5).float().mean():.0f}%")


main()
