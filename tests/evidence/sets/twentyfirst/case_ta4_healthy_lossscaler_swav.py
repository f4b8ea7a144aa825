"""
title: dynamic loss scaling overflows fp16 gradients in its first steps, skips them and settles
expect: clean
thread: https://github.com/facebookresearch/swav/issues/47
measured: bias 0.50, largest weight error below 0.01: True ; with fp32 gradients: bias 0.50, largest weight error below 0.01: True
suspect: 36 skipped (the scaled gradients become infinite in fp16 at first, but such steps are not applied and the scale is halved)

Expectation, written first: the scaler begins far too high, so the fp16 gradients overflow to infinity; each of these steps is detected and
skipped and the scale halves until they fit. Weights are updated in fp32 from finite gradients only, and the fit converges as usual.
"""
import torch
import torch.nn as nn


class LossScaler:
    def __init__(self, init_scale=2.0 ** 24, factor=2.0, window=500):
        self.scale = init_scale
        self.factor = factor
        self.window = window
        self.good_steps = 0

    def backward(self, loss):
        (loss * self.scale).backward()

    def update(self, overflow):
        if overflow:
            self.scale /= self.factor
            self.good_steps = 0
            return
        self.good_steps += 1
        if self.good_steps % self.window == 0:
            self.scale *= self.factor


def unscaled_grads(params, scaler):
    half = [p.grad.to(torch.float16) for p in params]
    overflow = any(not torch.isfinite(g).all() for g in half)
    return [g.float() / scaler.scale for g in half], overflow


def train(model, x, y, steps, lr):
    scaler = LossScaler()
    params = list(model.parameters())
    for _ in range(steps):
        loss = ((model(x) - y) ** 2).mean()
        scaler.backward(loss)
        grads, overflow = unscaled_grads(params, scaler)
        if not overflow:
            with torch.no_grad():
                for p, g in zip(params, grads):
                    p -= lr * g
        for p in params:
            p.grad = None
        scaler.update(overflow)


def main():
    torch.manual_seed(0)
    x = torch.randn(256, 10)
    y = x @ torch.linspace(-1.0, 1.0, 10).unsqueeze(1) + 0.5
    model = nn.Linear(10, 1)
    train(model, x, y, steps=300, lr=0.05)
    error = (model.weight.detach().flatten() - torch.linspace(-1.0, 1.0, 10)).abs().max()
    print(f"bias {model.bias.item():.2f}, largest weight error below 0.01: {bool(error < 0.01)}")


if __name__ == "__main__":
    main()
