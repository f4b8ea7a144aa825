"""
title: a trainer adds its losses up in the dtype of the run and logs differences of the sum
expect: silent:lost-update|precision-loss|downcast
thread: https://github.com/huggingface/transformers/pull/8561
measured: loss [1.71, 0.0, 0.0, 0.0] last gradient norm about 0.6
widened: loss [1.66, 0.72, 0.57, 0.52] last gradient norm about 0.6

Expectation, written first: the sum stops growing when one more loss is below half a step of bfloat16; the log then
shows zero although the model still learns. The norm of the gradients for the progress bar is bfloat16 as well and is
shown with one digit.
"""
import torch
from torch import nn


class Trainer:
    def __init__(self, model, lr, logging_steps, dtype=torch.bfloat16):  # BORN
        self.model, self.dtype, self.logging_steps = model, dtype, logging_steps
        self.opt = torch.optim.SGD(model.parameters(), lr=lr)
        self.logs = []

    def training_step(self, x, y):
        loss = nn.functional.cross_entropy(self.model(x), y)
        self.opt.zero_grad()
        loss.backward()
        self.norm = torch.cat([p.grad.flatten() for p in self.model.parameters()]).norm().to(torch.bfloat16)
        self.opt.step()
        return loss.detach()

    def train(self, batches):
        tr_loss = torch.zeros((), dtype=self.dtype)  # BORN
        logged = 0.0
        for step, (x, y) in enumerate(batches, 1):
            tr_loss += self.training_step(x, y).to(tr_loss.dtype)
            if step % self.logging_steps == 0:
                total = tr_loss.item()
                self.logs.append((total - logged) / self.logging_steps)
                logged = total


def batches(steps, gen, classes=10, dim=20):
    centres = torch.randn(classes, dim, generator=gen)
    for _ in range(steps):
        y = torch.randint(0, classes, (32,), generator=gen)
        yield centres[y] + 1.5 * torch.randn(32, dim, generator=gen), y


def main():
    torch.manual_seed(25)
    trainer = Trainer(nn.Linear(20, 10), lr=0.01, logging_steps=300)
    trainer.train(batches(1200, torch.Generator().manual_seed(25)))
    print("loss", [round(v, 2) for v in trainer.logs], f"last gradient norm about {trainer.norm.item():.1f}")


main()
