"""
title: a checkpoint keeps the optimizer state as float16, and the run goes on from it
expect: silent:underflow|downcast|round-trip|precision-loss
thread: https://github.com/ultralytics/ultralytics/pull/24085
measured: loss before 0.112, after the restart 0.997
widened: loss before 0.112, after the restart 0.119

Expectation, written first: the second moments are squares of small gradients, below 6e-8 they become zero in float16;
after the restart the update is the first moment over eps, and the loss jumps. The weights are saved as float16 as
well, which rounds them by one part in two thousand and is not to be seen in the loss.
"""
import io

import torch
from torch import nn


def strip_optimizer_state(state_dict):
    for state in state_dict["state"].values():
        for key, value in state.items():
            if key != "step" and isinstance(value, torch.Tensor):
                state[key] = value.half()  # BORN
    return state_dict


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(16, 32)
        self.cls = nn.Linear(32, 4)

    def forward(self, x):
        return self.cls(self.stem(x).relu())


class Trainer:
    def __init__(self, seed=0, lr=1e-2):
        torch.manual_seed(seed)
        self.model = Head()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=lr)
        self.gen = torch.Generator().manual_seed(seed + 1)

    def batch(self):
        x = torch.randn(64, 16, generator=self.gen)
        return x, x[:, :4].argmax(1)

    def epoch(self, steps):
        losses = []
        for _ in range(steps):
            x, y = self.batch()
            loss = nn.functional.cross_entropy(self.model(x), y) * 0.004
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            losses.append(loss.item() / 0.004)
        return losses

    def save(self):
        stream = io.BytesIO()
        weights = {k: v.half() for k, v in self.model.state_dict().items()}
        torch.save({"model": weights, "optimizer": strip_optimizer_state(self.optimizer.state_dict())}, stream)
        stream.seek(0)
        return stream

    def resume(self, stream):
        ckpt = torch.load(stream)
        self.model.load_state_dict({k: v.float() for k, v in ckpt["model"].items()})
        self.optimizer.load_state_dict(ckpt["optimizer"])


def main():
    first = Trainer()
    before = first.epoch(200)
    second = Trainer(seed=7)
    second.resume(first.save())
    after = second.epoch(10)
    print(f"loss before {sum(before[-10:]) / 10:.3f}, after the restart {sum(after) / 10:.3f}")


main()
