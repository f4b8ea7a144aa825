"""
title: a training engine turns the whole module to half, the states of its running metric included
expect: silent:lost-update|precision-loss|downcast
thread: https://github.com/Lightning-AI/torchmetrics/issues/1561
measured: validation error 1.000 over 2048 examples
widened: validation error 0.501 over 9600 examples

Expectation, written first: the running count and error sum are buffers of the module and become float16; the count
stops at 2048 when ones are added and the error sum stalls elsewhere, so the reported error is wrong. The network in
half predicts eighths exactly.
"""
import torch
from torch import nn


class MeanError(nn.Module):
    """sum and count as states that travel with the module"""

    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.tensor(0.0))
        self.register_buffer("count", torch.tensor(0.0))

    def update(self, pred, target):
        for error in (pred - target).abs():
            self.total += error.to(self.total.dtype)
            self.count += 1

    def compute(self):
        return (self.total.double() / self.count.double()).item()


class Regressor(nn.Module):
    """a table of part counts whose weights are eighths"""

    def __init__(self, parts):
        super().__init__()
        self.price = nn.Linear(parts, 1, bias=False)
        self.price.weight.data = torch.arange(1, parts + 1).float()[None] / 8

    def forward(self, x):
        return self.price(x.to(self.price.weight.dtype)).squeeze(-1)


class LitModule(nn.Module):
    def __init__(self, parts):
        super().__init__()
        self.model = Regressor(parts)
        self.metric = MeanError()

    def validation_step(self, batch):
        x, y = batch
        self.metric.update(self.model(x).float(), y)


class Engine:
    """what the accelerator plugin does with the user's module"""

    def __init__(self, module):
        module.model.half()
        self.module = module.half()  # BORN

    @torch.no_grad()
    def validate(self, loader):
        for batch in loader:
            self.module.validation_step(batch)
        return self.module.metric.compute()


def loader(batches, size, gen):
    price = torch.arange(1, 7).float() / 8
    for _ in range(batches):
        x = torch.randint(0, 4, (size, 6), generator=gen).float()
        yield x, x @ price + 0.4 + 0.2 * torch.rand(size, generator=gen)


def main():
    gen = torch.Generator().manual_seed(3)
    engine = Engine(LitModule(6))
    error = engine.validate(loader(150, 64, gen))
    print(f"validation error {error:.3f} over {int(engine.module.metric.count)} examples")


main()
