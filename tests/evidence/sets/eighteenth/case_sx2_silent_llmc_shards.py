"""
title: the data loader's token total wraps over many shards and the epoch gets a negative number of steps
expect: silent:integer-overflow|overflow|wraparound
thread: https://github.com/karpathy/llm.c/pull/822
measured: total tokens -1,294,967,296 in 30 files, steps per epoch -632,309, largest id 50116
widened: total tokens 3,000,000,000 in 30 files, steps per epoch 1,464,843, largest id 50116
innocent: total tokens -1,294,967,296 in 30 files, steps per epoch -632,309, largest id 50116
suspect: line 44 harmless (the vocabulary of 50257 fits uint16)

Expectation, written first: the shard header is an int32 array, so the number of tokens taken from it is a numpy int32 and
the running total over the shards stays int32; 30 shards of 100 M tokens pass 2**31 and the total is negative, the planned
number of steps with it. The uint16 tokens look narrow, but no id of the vocabulary is above 65535.
"""
import os
import tempfile
import warnings

import numpy as np

warnings.simplefilter("ignore")
VOCAB = 50257


def write_shard(filename, ntok, tokens):
    header = np.zeros(256, dtype=np.int32)
    header[0], header[1], header[2] = 20240520, 1, ntok
    with open(filename, "wb") as f:
        f.write(header.tobytes())
        f.write(tokens.astype(np.uint16).tobytes())


def _peek_data_shard(filename):
    with open(filename, "rb") as f:
        header = np.frombuffer(f.read(256 * 4), dtype=np.int32)
    assert header[0] == 20240520, "magic number mismatch in the data .bin file"
    assert header[1] == 1, "unsupported version"
    ntok = header[2]  # BORN
    return ntok


def _load_data_shard(filename):
    with open(filename, "rb") as f:
        f.seek(256 * 4)
        tokens = np.frombuffer(f.read(), dtype=np.uint16)
    return tokens


class DistributedDataLoader:
    def __init__(self, files, B, T, num_processes):
        self.B, self.T, self.num_processes = B, T, num_processes
        self.files = files
        ntok_total = 0
        for fname in self.files:
            shard_ntok = _peek_data_shard(fname)
            assert shard_ntok >= num_processes * B * T + 1
            ntok_total += shard_ntok  # BORN
        self.ntok_total = ntok_total
        self.tokens = _load_data_shard(self.files[0])

    def steps_per_epoch(self):
        return self.ntok_total // (self.B * self.T * self.num_processes)

    def next_batch(self):
        buf = self.tokens[: self.B * self.T + 1].astype(np.int64)
        return buf[:-1].reshape(self.B, self.T), buf[1:].reshape(self.B, self.T)


def main():
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as root:
        files = []
        for i in range(30):
            files.append(os.path.join(root, f"fineweb_train_{i:06d}.bin"))
            write_shard(files[-1], 100_000_000, rng.integers(0, VOCAB, 2049))
        loader = DistributedDataLoader(files, B=4, T=64, num_processes=8)
        x, y = loader.next_batch()
        print(f"total tokens {int(loader.ntok_total):,} in {len(files)} files, steps per epoch {int(loader.steps_per_epoch()):,}, largest id {y.max()}")


main()
