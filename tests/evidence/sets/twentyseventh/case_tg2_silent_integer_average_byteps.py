"""
title: push_pull averages integer tensors by floor division and the accuracy drops with every step
expect: silent:precision-loss|downcast
thread: https://github.com/bytedance/byteps/pull/344
measured: accuracy 39.0 % (counted by hand 50.7 %)
widened: accuracy 50.7 % (counted by hand 50.7 %); innocent: accuracy 39.0 % (counted by hand 50.7 %)
suspect: 56 exact (ten classes fit a byte)

Expectation, written first: the counts of correct samples are int64 and the average over the workers is made with
floor_divide_, which drops up to 7/8 of a sample at every step; the summed accuracy is far below the true one. Remedy:
average in float, or sum without averaging. The labels as int8 are exact.
"""
import torch
import torch.nn as nn


class LocalGroup:
    """all workers of the job in one process"""

    def __init__(self, size):
        self.size = size

    def push_pull(self, tensors, average=True):
        output = torch.zeros_like(tensors[0])
        for t in tensors:
            output += t
        if average:
            if output.is_floating_point():
                output.div_(self.size)
            else:
                output.floor_divide_(self.size)  # BORN
        return output


class Metric:
    def __init__(self, name, group):
        self.name = name
        self.group = group
        self.sum = torch.tensor(0.0)
        self.n = 0

    def update(self, values):
        self.sum += self.group.push_pull(values)
        self.n += 1

    @property
    def avg(self):
        return (self.sum / self.n).item()


def count_correct(logits, labels):
    return (logits.argmax(dim=1) == labels).sum()  # BORN


def make_batch(generator, centers, batch_size):
    labels = torch.randint(0, 10, (batch_size,), generator=generator).to(torch.int8)
    x = centers[labels.long()] + 1.6 * torch.randn(batch_size, centers.shape[1], generator=generator)
    return x, labels


@torch.no_grad()
def main():
    torch.manual_seed(344)
    size, batch_size = 8, 4
    group = LocalGroup(size)
    centers = torch.randn(10, 6)
    model = nn.Linear(6, 10)
    model.weight.copy_(2 * centers)
    model.bias.copy_(-centers.pow(2).sum(1))
    generators = [torch.Generator().manual_seed(r) for r in range(size)]
    correct = Metric("correct", group)
    true_hits = 0
    for step in range(50):
        hits = []
        for g in generators:
            x, labels = make_batch(g, centers, batch_size)
            hits.append(count_correct(model(x), labels))
        correct.update(hits)
        true_hits += int(sum(hits))
    print(f"accuracy {100 * correct.avg / batch_size:.1f} % (counted by hand {100 * true_hits / (50 * size * batch_size):.1f} %)")


main()
