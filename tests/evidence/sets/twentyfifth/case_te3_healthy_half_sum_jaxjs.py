"""
title: Sums of float16 activations are taken with a float32 accumulator
expect: clean
thread: https://github.com/ekzhang/jax-js/pull/80
measured: layer0 mean 1.04 std 0.81 / layer1 mean 1.40 std 0.77 / layer2 mean 1.45 std 0.71 / total 367k loss 0.96
suspect: 32 negligible (rounding of single values averages out; the accumulator is float32, the total is never half)

Expectation, written first: The activations are stored as float16 and reduced with dtype=float32. The total of
about 10**5 would not fit into half, but it is never made half. The rounding errors of the single values are random
and below 5e-4 relative, so means, variances and the loss agree with float64 in the digits printed.
"""
import torch
import torch.nn as nn


def reduce_sum(x, axis):
    acc = torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else x.dtype
    return torch.sum(x, dim=axis, dtype=acc)


def reduce_mean(x, axis):
    return reduce_sum(x, axis) / x.shape[axis]


class Buffer:
    """Activation storage of the runtime: values go in and out in the storage dtype."""

    def __init__(self, dtype):
        self.dtype, self.items = dtype, {}

    def write(self, name, value):
        self.items[name] = value.to(self.dtype)

    def read(self, name):
        return self.items[name]


class Sequential:
    def __init__(self, dims, generator):
        self.weights = [torch.randn(a, b, generator=generator) * (2 / a) ** 0.5 for a, b in zip(dims, dims[1:])]

    def run(self, x, buffer):
        for i, w in enumerate(self.weights):
            x = torch.relu(x @ w) + 0.5
            buffer.write(f"layer{i}", x)
            x = buffer.read(f"layer{i}").float()
        return x


def layer_stats(buffer):
    stats = {}
    for name, value in buffer.items.items():
        mean = reduce_mean(value, 0)
        centred = value.float() - mean
        var = reduce_mean(centred.square(), 0)
        stats[name] = (mean.mean().item(), var.mean().sqrt().item())
    return stats


def total_activation(buffer):
    return sum(reduce_sum(value.flatten(), 0).item() for value in buffer.items.values())


def main():
    torch.manual_seed(80)
    generator = torch.Generator().manual_seed(80)
    storage = torch.float16
    buffer = Buffer(storage)
    net = Sequential([16, 32, 32, 8], generator)
    x = torch.randn(4096, 16, generator=generator)
    out = net.run(x, buffer)
    target = torch.ones(8)
    loss = nn.functional.mse_loss(reduce_mean(out.to(storage), 0), target)
    for name, (mean, std) in layer_stats(buffer).items():
        print(f"{name} mean {mean:.2f} std {std:.2f}")
    print(f"total {total_activation(buffer) / 1000:.0f}k loss {loss.item():.2f}")


if __name__ == "__main__":
    main()
