"""
title: the optimizer state of a checkpoint is stored in float16 and the loss explodes after the resume
expect: silent:underflow|downcast|round-trip
thread: https://github.com/ultralytics/ultralytics/pull/24085
measured: loss before the stop 0.00012, just loaded 0.00012, five steps later 0.00801
widened: loss before the stop 0.00012, just loaded 0.00012, five steps later 0.00012

Expectation, written first: second moments of this small task are around 1e-9 and vanish in float16; after the load
the next steps are divided by epsilon only. The innocent suspect is the checkpoint's model, stored in float16 as well:
its rounding costs nothing to be seen, and keeping it wide alone does not help.
"""
import copy
import io

import torch
from torch import nn


def convert_optimizer_state_dict_to_fp16(state_dict):
    for state in state_dict["state"].values():
        for k, v in state.items():
            if k != "step" and isinstance(v, torch.Tensor) and v.dtype is torch.float32:
                state[k] = v.half()  # BORN
    return state_dict


class Classifier(nn.Module):
    def __init__(self, width=20, classes=3):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(width, 48), nn.SiLU(), nn.Linear(48, 48), nn.SiLU())
        self.cls = nn.Linear(48, classes)

    def forward(self, x):
        return self.cls(self.body(x))


class Trainer:
    def __init__(self, lr=5e-3):
        torch.manual_seed(0)
        self.teacher = nn.Linear(20, 3)
        self.model = Classifier()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=lr, weight_decay=0.0)
        self.gen = torch.Generator().manual_seed(1)

    def batch(self, n=64):
        x = torch.randn(n, 20, generator=self.gen)
        return x, self.teacher(x).detach()

    def loss(self, n=64):
        x, y = self.batch(n)
        return 1e-3 * (self.model(x) - y).square().mean()

    def run(self, steps):
        for _ in range(steps):
            self.optimizer.zero_grad()
            self.loss().backward()
            self.optimizer.step()

    @torch.no_grad()
    def evaluate(self):
        return 1e3 * self.loss(2000).item()

    def save(self, stream):
        torch.save(
            {
                "model": copy.deepcopy(self.model).half().state_dict(),
                "optimizer": convert_optimizer_state_dict_to_fp16(copy.deepcopy(self.optimizer.state_dict())),
            },
            stream,
        )

    def resume(self, stream):
        checkpoint = torch.load(stream)
        self.model.load_state_dict({k: v.float() for k, v in checkpoint["model"].items()})
        self.optimizer.load_state_dict(checkpoint["optimizer"])


def main():
    trainer = Trainer()
    trainer.run(400)
    before = trainer.evaluate()
    stream = io.BytesIO()
    trainer.save(stream)
    stream.seek(0)
    trainer.resume(stream)
    loaded = trainer.evaluate()
    trainer.run(5)
    print(f"loss before the stop {before:.5f}, just loaded {loaded:.5f}, five steps later {trainer.evaluate():.5f}")


main()
