"""
title: tokens of a 32000 word vocabulary stored as uint16
expect: clean
thread: https://github.com/princeton-nlp/LLM-Shearing/issues/65
measured: read back 100.0 %, tokens 14850, loss 4.172

Expectation, written first: every id fits 16 bits, the reader widens to int64 before any
arithmetic, and the whole corpus comes back identical; the file is a quarter in size.
"""
import os
import tempfile

import numpy as np
import torch
from torch import nn

VOCAB = 32000


def tokenise(docs, rng):
    for _ in range(docs):
        n = int(rng.integers(50, 200))
        yield (VOCAB * rng.random(n) ** 3).astype(np.int64)


class Writer:
    def __init__(self, path):
        self.path, self.parts = path, []

    def add(self, ids):
        if ids.max() >= 2 ** 16:
            raise ValueError("vocabulary too large for uint16")
        self.parts.append(ids.astype(np.uint16))

    def close(self):
        flat = np.concatenate(self.parts)
        flat.tofile(self.path)
        return len(flat)


class Reader:
    def __init__(self, path, block):
        self.data = np.memmap(path, dtype=np.uint16, mode="r")
        self.block = block

    def batch(self, starts):
        rows = [torch.from_numpy(self.data[s : s + self.block + 1].astype(np.int64)) for s in starts]
        rows = torch.stack(rows)
        return rows[:, :-1], rows[:, 1:]


def main():
    rng = np.random.default_rng(0)
    docs = list(tokenise(120, rng))
    with tempfile.TemporaryDirectory() as tmp:
        path = os.path.join(tmp, "train.bin")
        writer = Writer(path)
        for ids in docs:
            writer.add(ids)
        total = writer.close()
        reader = Reader(path, 32)
        same = (np.concatenate(docs) == reader.data).mean()
        torch.manual_seed(0)
        model = nn.Sequential(nn.Embedding(VOCAB, 8), nn.Linear(8, 64))
        x, y = reader.batch(rng.integers(0, total - 33, 4))
        loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten() % 64)
    print(f"read back {100 * same:.1f} %, tokens {total}, loss {loss.item():.3f}")


main()
