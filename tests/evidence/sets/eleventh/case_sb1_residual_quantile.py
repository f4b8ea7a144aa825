"""
title: outlier thresholds are quantiles of residuals that an exported model returns in half
expect: collision
thread: https://github.com/pytorch/pytorch/issues/138337
fix_at: 27, 28, 33, 44, 49

Expectation, written first: the reconstruction is half because the autoencoder was halved for inference, and so are
its errors; quantile accepts only float32 and float64.
"""
import torch
from torch import nn


class Autoencoder(nn.Module):
    def __init__(self, features=20, code=4):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(features, 12), nn.ReLU(), nn.Linear(12, code))
        self.decode = nn.Sequential(nn.Linear(code, 12), nn.ReLU(), nn.Linear(12, features))

    def forward(self, x):
        return self.decode(self.encode(x))


class Exported:
    """inference wrapper: narrow weights, any input"""

    def __init__(self, module, dtype=torch.float16):  # BORN
        self.module = module.eval().to(dtype)  # BORN
        self.dtype = dtype

    @torch.inference_mode()
    def __call__(self, x):
        return self.module(x.to(self.dtype))


class Detector:
    def __init__(self, model, level=0.95):
        self.model, self.level, self.threshold = model, level, None

    def errors(self, batches):
        parts = []
        for x in batches:
            out = self.model(x)
            parts.append((out - x.to(out.dtype)).abs().mean(1))
        return torch.cat(parts)

    def calibrate(self, batches):
        err = self.errors(batches)
        self.threshold = torch.quantile(err, self.level)  # COLLIDES
        return self

    def flag(self, batches):
        return self.errors(batches) > self.threshold


def pretrain(model, x, steps=30):
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(steps):
        loss = nn.functional.mse_loss(model(x), x)
        opt.zero_grad()
        loss.backward()
        opt.step()
    return model


torch.manual_seed(0)
basis = torch.randn(4, 20)
normal = torch.randn(256, 4) @ basis
model = pretrain(Autoencoder(), normal[:128])
detector = Detector(Exported(model)).calibrate(normal[128:].split(32))
strange = torch.randn(64, 20) * 3
print(f"flagged {detector.flag(strange.split(32)).float().mean().item():.2f}")
