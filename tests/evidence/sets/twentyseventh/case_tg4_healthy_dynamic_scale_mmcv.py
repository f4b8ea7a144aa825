"""
title: the first steps with a dynamic loss scale overflow and are skipped
expect: clean
thread: https://github.com/open-mmlab/mmcv/pull/585
measured: skipped 7 loss 1.764 -> 0.276 masters finite True
suspect: 20 nil (overflowing steps are detected and skipped, the scale is halved)

Expectation, written first: dynamic loss scaling begins with a scale that is far too high on purpose. The float16
gradients of the first steps are infinite, the scaler sees it, drops these steps and halves the scale; the float32 masters
are never touched by them. From then on the training is normal.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class LossScaler:
    def __init__(self, mode="dynamic", scale_factor=2.0, scale_window=1000):
        self.mode = mode
        self.cur_scale = 2.0 ** 24
        self.cur_iter, self.last_overflow_iter = 0, -1
        self.scale_factor, self.scale_window = scale_factor, scale_window

    def has_overflow(self, params):
        return any(p.grad is not None and not torch.isfinite(p.grad).all() for p in params)

    def update_scale(self, overflow):
        if overflow:
            self.cur_scale = max(self.cur_scale / self.scale_factor, 1)
            self.last_overflow_iter = self.cur_iter
        elif (self.cur_iter - self.last_overflow_iter) % self.scale_window == 0:
            self.cur_scale *= self.scale_factor
        self.cur_iter += 1


class Fp16OptimizerHook:
    def __init__(self, model, lr):
        self.fp16_params = list(model.parameters())
        self.fp32_params = [p.detach().float().clone() for p in self.fp16_params]
        self.optimizer = torch.optim.SGD(self.fp32_params, lr=lr, momentum=0.9)
        self.loss_scaler = LossScaler()
        self.skipped = 0

    def after_train_iter(self, loss):
        for p in self.fp16_params:
            p.grad = None
        (loss * self.loss_scaler.cur_scale).backward()
        overflow = self.loss_scaler.has_overflow(self.fp16_params)
        if overflow:
            self.skipped += 1
        else:
            for master, p in zip(self.fp32_params, self.fp16_params):
                master.grad = p.grad.float() / self.loss_scaler.cur_scale
            self.optimizer.step()
            with torch.no_grad():
                for master, p in zip(self.fp32_params, self.fp16_params):
                    p.copy_(master)
        self.loss_scaler.update_scale(overflow)


class Head(nn.Module):
    def __init__(self, in_channels=16, num_classes=5):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(in_channels, 32), nn.Linear(32, num_classes)

    def forward(self, x, labels):
        logits = self.fc2(F.relu(self.fc1(x.half())))
        return F.cross_entropy(logits.float(), labels)


def main():
    torch.manual_seed(585)
    model = Head().half()
    hook = Fp16OptimizerHook(model, lr=0.1)
    centers = torch.randn(5, 16)
    losses = []
    for _ in range(80):
        labels = torch.randint(0, 5, (64,))
        loss = model(centers[labels] + torch.randn(64, 16), labels)
        hook.after_train_iter(loss)
        losses.append(loss.item())
    print(f"skipped {hook.skipped} loss {losses[0]:.3f} -> {sum(losses[-10:]) / 10:.3f}",
          f"masters finite {all(p.isfinite().all().item() for p in hook.fp32_params)}")


main()
