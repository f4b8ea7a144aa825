"""
title: the tokens of all shards are added up in the integer type of the shard headers
expect: silent:integer-overflow|overflow
thread: https://github.com/karpathy/llm.c/pull/822
measured: steps in an epoch 297 (by hand 8489), rate at step 4000 3.00e-05
widened: steps in an epoch 8489 (by hand 8489), rate at step 4000 1.77e-04

Expectation, written first: headers hold int32 counts and their running total wraps after two billion tokens;
the number of steps of an epoch, and with it the learning rate's decay, are wrong.
"""
import io
import math
import struct

import torch


def write_header(tokens):
    return io.BytesIO(struct.pack("<iiq", 20240520, tokens, 0))


class ShardedData:
    magic = 20240520

    def __init__(self, streams):
        self.lengths = [self.peek(s) for s in streams]

    def peek(self, stream):
        header = torch.frombuffer(bytearray(stream.read(8)), dtype=torch.int32)
        assert header[0] == self.magic
        return header[1]  # BORN

    def total(self):
        count = torch.zeros_like(self.lengths[0])  # BORN
        for n in self.lengths:
            count += n
        return count

    def steps(self, batch_tokens):
        return (self.total() // batch_tokens).item()


class Cosine:
    def __init__(self, peak, steps, warmup=100):
        self.peak, self.steps, self.warmup = peak, max(steps, 1), warmup

    def __call__(self, step):
        if step < self.warmup:
            return self.peak * (step + 1) / self.warmup
        done = min(step / self.steps, 1.0)
        return self.peak * (0.1 + 0.45 * (1 + math.cos(math.pi * done)))


def main():
    gen = torch.Generator().manual_seed(0)
    sizes = torch.randint(98_000_000, 100_000_001, (45,), generator=gen).tolist()
    data = ShardedData([write_header(n) for n in sizes])
    steps = data.steps(batch_tokens=524_288)
    schedule = Cosine(3e-4, steps)
    print(f"steps in an epoch {steps} (by hand {sum(sizes) // 524_288}), rate at step 4000 {schedule(4000):.2e}")


main()
