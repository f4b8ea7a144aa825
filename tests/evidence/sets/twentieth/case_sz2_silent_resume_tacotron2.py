"""
title: after a resume in fp16 the second moments of Adam are loaded onto half parameters and underflow, and the loss jumps
expect: silent:underflow|downcast|round-trip
thread: https://github.com/NVIDIA/tacotron2/issues/62
measured: loss before the checkpoint 0.0006 ; loss after the resume [0.0006, 0.0136, 0.0202, 0.0142]
widened: loss before the checkpoint 0.0006 ; loss after the resume [0.0006, 0.0006, 0.0006, 0.0006]
innocent: loss before the checkpoint 0.0006 ; loss after the resume [0.0006, 0.0136, 0.0202, 0.0142]
suspect: 28 exact (the loss scale is a power of two)

Expectation, written first: load_checkpoint gives the saved state to an optimizer over half parameters, and torch casts the moments to the
parameters' dtype; second moments of 1e-9 are zero in float16, so the masters' first steps after the resume divide by eps alone and the loss jumps
much. The loss scale is kept as float16 too, near its largest number, but 32768 is a power of two.
"""
import torch
from torch import nn


def make_model():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))


class FP16Trainer:
    def __init__(self, model, lr=1e-2):
        self.model = model.half()
        self.masters = [p.detach().float().requires_grad_() for p in model.parameters()]
        self.optimizer = torch.optim.Adam(self.masters, lr=lr)
        self.loss_scale = torch.tensor(32768.0, dtype=torch.float16)

    def train_step(self, x, y):
        scale = self.loss_scale.float()
        loss = 1e-3 * (self.model(x.half()).float() - y).pow(2).mean()
        self.model.zero_grad()
        (loss * scale).backward()
        for m, p in zip(self.masters, self.model.parameters()):
            m.grad = p.grad.float() / scale
        self.optimizer.step()
        with torch.no_grad():
            for m, p in zip(self.masters, self.model.parameters()):
                p.copy_(m)
        return loss.item() * 1e3

    def save_checkpoint(self):
        return {"masters": [m.detach().clone() for m in self.masters], "optimizer": self.optimizer.state_dict()}


def load_checkpoint(checkpoint, lr=1e-2):
    trainer = FP16Trainer(make_model(), lr)
    with torch.no_grad():
        for m, p, saved in zip(trainer.masters, trainer.model.parameters(), checkpoint["masters"]):
            m.copy_(saved)
            p.copy_(saved)
    loader = torch.optim.Adam(trainer.model.parameters(), lr=lr)  # BORN
    loader.load_state_dict(checkpoint["optimizer"])  # BORN
    for m, p in zip(trainer.masters, trainer.model.parameters()):
        trainer.optimizer.state[m] = {k: v.float() for k, v in loader.state[p].items()}
    return trainer


def main():
    trainer = FP16Trainer(make_model())
    g = torch.Generator().manual_seed(0)
    x = torch.randn(64, 8, generator=g)
    y = torch.sin(x[:, :1]) + 0.5 * x[:, 1:2]
    losses = [trainer.train_step(x, y) for _ in range(200)]
    resumed = load_checkpoint(trainer.save_checkpoint())
    after = [resumed.train_step(x, y) for _ in range(12)]
    print(f"loss before the checkpoint {losses[-1]:.4f}")
    print("loss after the resume", [round(v, 4) for v in after[::3]])


main()
