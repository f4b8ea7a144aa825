"""
title: averaging after the allreduce gives inf gradients with fp16 compression and many workers
expect: silent:overflow|downcast
thread: https://github.com/horovod/horovod/issues/1699
measured: step 0 loss 82144.8 / step 5 loss nan
widened: step 0 loss 82144.8 / step 5 loss 14100.1; innocent: step 0 loss 82144.8 / step 5 loss nan
suspect: 61 exact (small integers)

Expectation, written first: each rank's gradient is about 1e3 and fits float16, but the buffer of the sum over 256 ranks
is float16 too and the division by the world size comes only afterwards, so the sum is inf and the weights are lost at the
first step. Remedy: divide before, or sum in float32. The features in half are small whole numbers.
"""
import torch
from torch import nn


class FP16Compressor:
    @staticmethod
    def compress(tensor):
        ctx = tensor.dtype
        return tensor.to(torch.float16), ctx  # BORN

    @staticmethod
    def decompress(tensor, ctx):
        return tensor.to(ctx)


class NoneCompressor:
    @staticmethod
    def compress(tensor):
        return tensor, None

    @staticmethod
    def decompress(tensor, ctx):
        return tensor


def allreduce_(tensors):
    total = torch.zeros_like(tensors[0])  # BORN
    for t in tensors:
        total += t  # BORN
    return total


class DistributedOptimizer:
    def __init__(self, optimizer, named_parameters, world_size, compression=NoneCompressor):
        self.optimizer = optimizer
        self.named_parameters = list(named_parameters)
        self.world_size = world_size
        self.compression = compression

    def step(self, grads_of_ranks):
        for i, (_, p) in enumerate(self.named_parameters):
            sent = [self.compression.compress(grads[i]) for grads in grads_of_ranks]
            summed = allreduce_([t for t, _ in sent])
            p.grad = self.compression.decompress(summed, sent[0][1]) / self.world_size
        self.optimizer.step()


def rank_batch(generator, true_weight):
    x = torch.randint(0, 4, (32, 8), generator=generator).half()
    y = x.float() @ true_weight + 40.0
    return x.float(), y


def main():
    torch.manual_seed(1699)
    world_size = 256
    model = nn.Linear(8, 1)
    optimizer = DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=4e-3), model.named_parameters(),
                                     world_size, compression=FP16Compressor)  # BORN
    generator = torch.Generator().manual_seed(3)
    true_weight = torch.full((8, 1), 20.0)
    batches = [rank_batch(generator, true_weight) for _ in range(world_size)]
    for step in range(6):
        grads, losses = [], []
        for x, y in batches:
            loss = (model(x) - y).pow(2).mean()
            grads.append(torch.autograd.grad(loss, list(model.parameters())))
            losses.append(loss.item())
        if step in (0, 5):
            print(f"step {step} loss {sum(losses) / world_size:.1f}")
        optimizer.step(grads)


main()
