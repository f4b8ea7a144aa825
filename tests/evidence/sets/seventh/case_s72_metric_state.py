"""
title: Casting the whole module for inference takes the metric's state along
expect: silent:lost-update|precision-loss|downcast
thread: https://github.com/Lightning-AI/torchmetrics/issues/1561
needs: torchmetrics
measured: reported MAE = 0.0259, true MAE = 0.0499
widened: reported MAE = 0.0499, true MAE = 0.0499

Expectation, written first.  The mean absolute error is an attribute of the
model, as usual in Lightning code.  model.to(torch.float16) before the
evaluation also casts the metric's running sum.  Each batch adds about 3.2;
from 8192 on a half has a step of 8 and the sum does not grow any more, while
the count (int64) does: the reported error shrinks with the size of the
evaluation set.  BORN is the cast of the module; in float32 the figure is right.
"""
import torch
from torch import nn
from torchmetrics.regression import MeanAbsoluteError

torch.manual_seed(0)
torch.set_num_threads(1)


class DepthRegressor(nn.Module):
    def __init__(self, features=6):
        super().__init__()
        self.backbone = nn.Linear(features, 1)
        self.val_mae = MeanAbsoluteError()

    def forward(self, x):
        return self.backbone(x).squeeze(-1)

    def validation_step(self, x, y):
        prediction = self(x)
        self.val_mae.update(prediction, y)


def windows(batches, size=64):
    g = torch.Generator().manual_seed(3)
    w = torch.linspace(-0.4, 0.4, 6)
    for _ in range(batches):
        x = torch.randn(size, 6, generator=g)
        yield x, x @ w + 0.0625 * torch.randn(size, generator=g)


def calibrate(model):
    with torch.no_grad():
        model.backbone.weight.copy_(torch.linspace(-0.4, 0.4, 6)[None])
        model.backbone.bias.zero_()


@torch.no_grad()
def main(batches=5000):
    model = DepthRegressor()
    calibrate(model)
    model = model.eval().to(torch.float16)  # BORN
    dtype = model.backbone.weight.dtype
    exact = 0.0
    for x, y in windows(batches):
        model.validation_step(x.to(dtype), y.to(dtype))
        exact += (model(x.to(dtype)).float() - y).abs().mean().item() / batches
    print(f"reported MAE = {model.val_mae.compute().item():.4f}, true MAE = {exact:.4f}")


if __name__ == "__main__":
    main()
