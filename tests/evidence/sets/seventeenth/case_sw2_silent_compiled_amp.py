"""
title: scaled gradients of a compiled head are inf and every step is skipped: the head runs in half precision under autocast
expect: silent:overflow|gradient-dtype|downcast
thread: https://github.com/pytorch/pytorch/issues/153044
measured: steps skipped 120 of 120, final loss per sample 53.6482
widened: steps skipped 0 of 120, final loss per sample 1.1607
innocent: steps skipped 120 of 120, final loss per sample 53.6451
suspect: 24 half features: small (no gradient flows there, values of order one)

Expectation, written first: The compiled head stays inside the autocast region, so its product and the gradient of its weight are float16;
    with a loss scale of 16384 and a sum over 64 samples the gradient passes 65504. The half precision feature extractor stands in the
    same region and looks the same, but it holds a buffer only and no gradient passes there.
"""
import torch
from torch import nn


class FeatureExtractor(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.register_buffer("basis", torch.eye(dim) * 0.9 + 0.01)

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.float16):
            return x @ self.basis


class Head(nn.Module):
    def __init__(self, dim=16, enabled=True):  # BORN
        super().__init__()
        self.linear, self.enabled = nn.Linear(dim, 1), enabled

    def forward(self, y):
        with torch.autocast("cpu", dtype=torch.float16, enabled=self.enabled):  # BORN
            return self.linear(y.float())  # BORN


class StaticScaler:
    def __init__(self, scale=16384.0):
        self.scale, self.skipped = scale, 0

    def step(self, params, loss, lr):
        grads = torch.autograd.grad(loss * self.scale, params)
        if not all(torch.isfinite(g).all() for g in grads):
            self.skipped += 1
            return
        for p, g in zip(params, grads):
            p.data.sub_(g / self.scale, alpha=lr)


torch.manual_seed(0)
features, head = FeatureExtractor(), Head()
predict = torch.compile(head, backend="eager")
scaler, truth = StaticScaler(), torch.randn(16)
for step in range(120):
    x = 1 + torch.randn(64, 16)
    target = x @ truth + 2
    residual = predict(features(x)).squeeze(-1).float() - target
    loss = residual.pow(2).sum()
    scaler.step(list(head.parameters()), loss, lr=1e-4)
print(f"steps skipped {scaler.skipped} of 120, final loss per sample {loss / 64:.4f}")
