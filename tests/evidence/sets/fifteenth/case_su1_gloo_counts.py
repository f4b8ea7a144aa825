"""
title: workers keep their class histogram in int16 to save room and reduce it over gloo
expect: collision
thread: https://github.com/pytorch/pytorch/issues/2699
fix_at: 24, 28, 30, 57, 64

Expectation, written first: the histogram is an int16 buffer of the sampler's statistics; gloo has no reduction for
that type and calls the scalar type invalid.
"""
import torch
import torch.distributed as dist
from torch import nn


class Synced(nn.Module):
    """a module whose buffers are summed over the workers before they are read"""

    def sync(self):
        for name, buffer in self.named_buffers():
            self._reduce(name, buffer)

    def _reduce(self, name, buffer):
        if dist.is_initialized():
            dist.all_reduce(buffer)  # COLLIDES


class ClassHistogram(Synced):
    def __init__(self, classes, dtype=torch.int16):  # BORN
        super().__init__()
        self.register_buffer("counts", torch.zeros(classes, dtype=dtype))  # BORN
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))

    def update(self, labels):
        self.counts += torch.bincount(labels, minlength=len(self.counts)).to(self.counts.dtype)
        self.batches += 1

    def weights(self):
        share = self.counts.float() / self.counts.sum()
        return (1 / share.clamp(min=1e-3)).div_(len(share))


class Shard:
    def __init__(self, rank, world, classes, size=600, seed=7):
        gen = torch.Generator().manual_seed(seed)
        prior = torch.linspace(1, 4, classes)
        labels = torch.multinomial(prior, size, replacement=True, generator=gen)
        inputs = torch.randn(size, 8, generator=gen) + labels[:, None] * 0.3
        self.inputs, self.labels = inputs[rank::world], labels[rank::world]

    def __iter__(self):
        return iter(zip(self.inputs.split(50), self.labels.split(50)))


class Worker:
    def __init__(self, rank, world, classes=5):
        self.shard = Shard(rank, world, classes)
        self.histogram = ClassHistogram(classes)  # BORN
        self.model = nn.Linear(8, classes)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.2)

    def survey(self):
        for _, labels in self.shard:
            self.histogram.update(labels)
        self.histogram.sync()
        return self.histogram.weights()

    def epoch(self, weights):
        for inputs, labels in self.shard:
            loss = nn.functional.cross_entropy(self.model(inputs), labels, weight=weights)
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
        return loss.item()


def main():
    torch.manual_seed(0)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        worker = Worker(dist.get_rank(), dist.get_world_size())
        weights = worker.survey()
        print("weights", [round(w, 3) for w in weights.tolist()], f"loss {worker.epoch(weights):.4f}")
    finally:
        dist.destroy_process_group()


main()
