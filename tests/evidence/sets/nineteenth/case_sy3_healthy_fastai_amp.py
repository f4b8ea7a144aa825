"""
title: float16 autocast with a GradScaler around a float32 model, the loss on upcast predictions
expect: clean
thread: https://github.com/fastai/fastai/pull/3929
measured: epoch 0 loss 1.053; epoch 1 loss 0.688; epoch 2 loss 0.383; epoch 3 loss 0.308; scale 4096.0
suspect: 28 scaled (float16 compute is under autocast, with loss scaling and float32 weights)

Expectation, written first: the callback opens a float16 autocast context around the forward pass, casts the predictions to float32 before the
loss, scales the loss, and steps through the scaler. Parameters, gradients and optimizer state are float32. The training converges as it
would without mixed precision.
"""
from enum import Enum

import torch
import torch.nn as nn
import torch.nn.functional as F


AMPMode = Enum("AMPMode", ["FP16", "BF16"])


class MixedPrecision:
    def __init__(self, amp_mode=AMPMode.FP16, **kwargs):
        self.amp_mode = amp_mode
        self.kwargs = kwargs

    def before_fit(self, learn):
        dtype = torch.bfloat16 if self.amp_mode == AMPMode.BF16 else torch.float16
        self.autocast = torch.autocast("cpu", dtype=dtype)
        learn.scaler = torch.amp.GradScaler("cpu", enabled=dtype == torch.float16, **self.kwargs)

    def before_batch(self, learn):
        self.autocast.__enter__()

    def after_pred(self, learn):
        self.autocast.__exit__(None, None, None)
        learn.pred = learn.pred.float()

    def before_step(self, learn):
        learn.scaler.step(learn.opt)
        learn.scaler.update()


class Learner:
    def __init__(self, model, loss_func, lr, cbs):
        self.model, self.loss_func, self.cbs = model, loss_func, cbs
        self.opt = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)

    def __call__(self, event):
        for cb in self.cbs:
            getattr(cb, event, lambda learn: None)(self)

    def fit(self, dl, n_epoch):
        self("before_fit")
        for epoch in range(n_epoch):
            total, seen = 0.0, 0
            for xb, yb in dl:
                self("before_batch")
                self.pred = self.model(xb)
                self("after_pred")
                loss = self.loss_func(self.pred, yb)
                self.scaler.scale(loss).backward()
                self("before_step")
                self.opt.zero_grad()
                total += loss.item() * len(yb)
                seen += len(yb)
            print(f"epoch {epoch} loss {total / seen:.3f}")


def make_data(n=256):
    g = torch.Generator().manual_seed(1)
    y = torch.randint(0, 3, (n,), generator=g)
    x = torch.randn(n, 1, 12, 12, generator=g) * 3.0
    for i, c in enumerate(y.tolist()):
        x[i, 0, 4 * c: 4 * c + 4] += 1.0
    return list(zip(x.split(32), y.split(32)))


def main():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8 * 36, 32), nn.ReLU(), nn.Linear(32, 3)
    )
    learn = Learner(model, F.cross_entropy, lr=0.02, cbs=[MixedPrecision(AMPMode.FP16, init_scale=2.0**12)])
    learn.fit(make_data(), 4)
    print("scale", learn.scaler.get_scale())


if __name__ == "__main__":
    main()
