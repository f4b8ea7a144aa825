"""
title: The average loss falls through the epoch only because the bf16 meter stops counting
expect: silent:lost-update|precision-loss|downcast
thread: https://github.com/pytorch-tpu/examples/pull/18
measured: running average loss 2.56 1.28 0.85 0.64
widened: running average loss 2.44 2.45 2.45 2.45
innocent: running average loss 2.56 1.28 0.85 0.64
suspect: 45 per-step

Expectation, written first: The meter's running sum is a bf16 tensor on the device; once it is some hundred times the loss of a step, adding the next one
changes nothing, while the count goes on, so the average sinks without any learning. The logits and with them the loss of one
step are bf16 too, but each is right to three digits.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F

XLA_DTYPE = torch.bfloat16


class AverageMeter:
    def __init__(self, name):
        self.name = name
        self.reset()

    def reset(self):
        self.sum = torch.zeros((), dtype=XLA_DTYPE)  # BORN
        self.count = 0

    def update(self, val, n=1):
        self.sum += val * n  # BORN
        self.count += n

    @property
    def avg(self):
        return self.sum.item() / max(self.count, 1)


class Classifier(nn.Module):
    def __init__(self, dim=32, classes=10):
        super().__init__()
        self.head = nn.Linear(dim, classes).to(XLA_DTYPE)

    def forward(self, features):
        logits = self.head(features.to(XLA_DTYPE))
        return logits


class FakeLoader:
    def __init__(self, batches, batch_size=16):
        self.generator = torch.Generator().manual_seed(0)
        self.batches = batches
        self.batch_size = batch_size

    def __iter__(self):
        for _ in range(self.batches):
            x = torch.randn(self.batch_size, 32, generator=self.generator)
            y = torch.randint(0, 10, (self.batch_size,), generator=self.generator)
            yield x, y


@torch.no_grad()
def validate_epoch(model, loader, log_every):
    losses = AverageMeter("loss")
    progress = []
    for step, (x, y) in enumerate(loader, 1):
        loss = F.cross_entropy(model(x), y)
        losses.update(loss.detach(), n=x.shape[0])  # BORN
        if step % log_every == 0:
            progress.append(losses.avg)
    return progress


def main():
    torch.manual_seed(1)
    model = Classifier()
    progress = validate_epoch(model, FakeLoader(batches=1600), log_every=400)
    print("running average loss", " ".join(f"{value:.2f}" for value in progress))


if __name__ == "__main__":
    main()
