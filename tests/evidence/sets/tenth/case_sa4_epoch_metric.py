"""
title: the epoch's mean of a logged loss is summed in bfloat16; the logged losses are bfloat16 as well
expect: silent:lost-update|precision-loss|downcast
thread: https://github.com/Lightning-AI/pytorch-lightning/issues/18620
measured: val_loss 0.171, mean of the steps 1.249
widened: val_loss 1.249, mean of the steps 1.249

Expectation, written first: once the sum is 256 or more, losses near one are lost; the mean
falls with the length of the epoch. The losses themselves are rounded to bfloat16, each by
less than half a percent and to both sides; widening them changes nothing.
"""
import torch


class ResultMetric:
    def __init__(self, dtype):
        self.value = torch.zeros((), dtype=dtype)  # BORN
        self.weight = 0

    def update(self, value, batch_size):
        self.value += value * batch_size
        self.weight += batch_size

    def compute(self):
        return self.value.item() / self.weight


class Logger:
    def __init__(self):
        self.metrics, self.exact = {}, {}

    def log(self, name, value, batch_size):
        if name not in self.metrics:
            self.metrics[name] = ResultMetric(torch.bfloat16)  # BORN
        self.metrics[name].update(value, batch_size)


def steps(n, gen):
    for _ in range(n):
        yield 1.1 + 0.3 * torch.rand((), generator=gen)


def main(n=3000):
    gen = torch.Generator().manual_seed(0)
    logger, total = Logger(), 0.0
    for loss in steps(n, gen):
        total += loss.item()
        logged = loss.to(torch.bfloat16)
        logger.log("val_loss", logged, batch_size=1)
    print(f"val_loss {logger.metrics['val_loss'].compute():.3f}, mean of the steps {total / n:.3f}")


main()
