"""
title: the checkpoint holds the optimizer's momentum in float16 and training resumes from it
expect: clean
thread: https://github.com/ultralytics/ultralytics/pull/9435
measured: epoch 1 1.675 then ['1.267', '0.805', '0.492'] resumed ['1.267', '0.805', '0.492']
suspect: 22 negligible (momentum buffers of ordinary size keep eleven bits and are renewed within ten steps)

Expectation, written first: only the SGD momentum buffers are stored as float16; load_state_dict brings them back as
float32. Their size is 1e-3 to 1, well within range, the relative rounding of 5e-4 decays with the momentum. The losses of
the resumed run agree with the uninterrupted one to what is printed.
"""
import copy

import torch
import torch.nn as nn


def convert_optimizer_state_dict_to_fp16(state_dict):
    for state in state_dict["state"].values():
        for k, v in state.items():
            if k != "step" and isinstance(v, torch.Tensor) and v.dtype is torch.float32:
                state[k] = v.half()
    return state_dict


class Detect(nn.Module):
    def __init__(self, nc=4):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(20, 32), nn.SiLU())
        self.cls, self.box = nn.Linear(32, nc), nn.Linear(32, 4)

    def forward(self, x):
        x = self.backbone(x)
        return self.cls(x), self.box(x)


class Trainer:
    def __init__(self, seed):
        torch.manual_seed(seed)
        self.model = Detect()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.02, momentum=0.9, nesterov=True)
        self.teacher = torch.randn(20, 8)
        self.generator = torch.Generator().manual_seed(seed)

    def batch(self):
        x = torch.randn(64, 20, generator=self.generator)
        y = x @ self.teacher
        return x, y[:, :4].argmax(1), y[:, 4:] * 0.2

    def train_one_epoch(self, steps=25):
        total = 0.0
        for _ in range(steps):
            x, cls, box = self.batch()
            pc, pb = self.model(x)
            loss = nn.functional.cross_entropy(pc, cls) + nn.functional.smooth_l1_loss(pb, box)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total += loss.item()
        return total / steps

    def save_model(self):
        return {
            "model": copy.deepcopy(self.model.state_dict()),
            "optimizer": convert_optimizer_state_dict_to_fp16(copy.deepcopy(self.optimizer.state_dict())),
            "rng": self.generator.get_state(),
        }

    def resume_training(self, ckpt):
        self.model.load_state_dict(ckpt["model"])
        self.optimizer.load_state_dict(ckpt["optimizer"])
        self.generator.set_state(ckpt["rng"])


def main():
    trainer = Trainer(9435)
    first = trainer.train_one_epoch()
    ckpt = trainer.save_model()
    straight = [trainer.train_one_epoch() for _ in range(3)]
    resumed = Trainer(9435)
    resumed.resume_training(ckpt)
    again = [resumed.train_one_epoch() for _ in range(3)]
    print(f"epoch 1 {first:.3f} then", [f"{v:.3f}" for v in straight], "resumed", [f"{v:.3f}" for v in again])


main()
