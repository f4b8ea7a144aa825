"""
title: with a loss scale of 65536 a float16 loss overflows, every step is skipped and the loss curve stays flat
expect: silent:overflow|downcast
thread: https://github.com/microsoft/onnxruntime/pull/4465
measured: loss first 0.19 last 0.19 | steps 120 skipped 120
widened: loss first 0.04 last 0.00 | steps 120 skipped 0; innocent: loss first 0.19 last 0.19 | steps 120 skipped 120
suspect: line 35 - innocent: the inputs lie between 0 and 1, their rounding to float16 hardly moves the loss

Expectation, written first: the loss is computed in float16 like the network's output and the scale is brought to that
type, where 65536 is inf. The gradients are inf, the check finds them not finite and every step is skipped, so the
loss never falls. With the loss in float32 training goes on. The float16 inputs do no harm.
"""
import torch
import torch.nn.functional as F
from torch import nn


class StaticLossScaler:
    def __init__(self, loss_scale=float(1 << 16)):
        self.loss_scale = torch.tensor(loss_scale)

    def scale(self, loss):
        return loss * self.loss_scale.to(loss.dtype)  # BORN


class FP16Trainer:
    def __init__(self, model, lr=0.4, loss_scaler=None):
        self.master = [p.detach().float().clone() for p in model.parameters()]
        self.model = model.half()
        self.lr = lr
        self.scaler = loss_scaler or StaticLossScaler()
        self.skipped = 0

    def train_step(self, features, target):
        features = features.half()
        prediction = self.model(features)
        loss = F.smooth_l1_loss(prediction, target.to(prediction.dtype))  # BORN
        self.model.zero_grad(set_to_none=True)
        self.scaler.scale(loss).backward()
        grads = [p.grad.float() / self.scaler.loss_scale for p in self.model.parameters()]
        if all(torch.isfinite(g).all() for g in grads):
            self.apply(grads)
        else:
            self.skipped += 1
        return loss.item()

    @torch.no_grad()
    def apply(self, grads):
        for master, grad, param in zip(self.master, grads, self.model.parameters()):
            master -= self.lr * grad
            param.copy_(master)


class Head(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.fc = nn.Linear(dim, 8)
        self.out = nn.Linear(8, 1)

    def forward(self, x):
        return self.out(torch.tanh(self.fc(x.to(self.fc.weight.dtype))))


def batches(n, gen):
    for _ in range(n):
        x = torch.rand(64, 8, generator=gen)
        yield x, x[:, :2].sum(1, keepdim=True) * 0.3


def main():
    torch.manual_seed(0)
    trainer = FP16Trainer(Head())
    losses = [trainer.train_step(x, y) for x, y in batches(120, torch.Generator().manual_seed(1))]
    print(f"loss first {sum(losses[:5]) / 5:.2f} last {sum(losses[-5:]) / 5:.2f}")
    print("steps", len(losses), "skipped", trainer.skipped)


if __name__ == "__main__":
    main()
