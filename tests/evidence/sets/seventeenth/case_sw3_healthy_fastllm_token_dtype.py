"""
title: token ids stored in the narrowest integer that fits the vocabulary and widened to int64 once, in the collation
expect: clean
thread: https://github.com/ServiceNow/Fast-LLM/pull/540
measured: checksum equal True loss 4.382
suspect: 32 fits

Expectation, written first: the memory-mapped store casts int64 ids to int16, which holds every id of a vocabulary below 2**15, and the
batch is brought back to int64 before the embedding and the loss. Nothing wraps and the tokens read are those written.
"""
import os
import tempfile

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

def get_integer_type(vocab_size):
    for dtype in (np.int8, np.int16, np.int32):
        if vocab_size - 1 <= np.iinfo(dtype).max:
            return dtype
    return np.int64

class MemmapWriter:
    def __init__(self, path, vocab_size):
        self.path, self.dtype = path, get_integer_type(vocab_size)

    def write(self, documents):
        tokens = np.concatenate(documents)
        tokens.astype(self.dtype).tofile(self.path)
        return np.cumsum([0] + [len(d) for d in documents])

class TokenDataset(Dataset):
    def __init__(self, path, vocab_size, sequence_length):
        self.tokens = np.memmap(path, dtype=get_integer_type(vocab_size), mode="r")
        self.sequence_length = sequence_length

    def __len__(self):
        return len(self.tokens) // self.sequence_length

    def __getitem__(self, index):
        begin = index * self.sequence_length
        return torch.from_numpy(self.tokens[begin:begin + self.sequence_length].copy())

class TokenBatch:
    def __init__(self, tokens):
        self.tokens, self.labels = tokens, tokens.clone()

    @classmethod
    def from_documents(cls, documents):
        return cls(torch.stack(documents).to(torch.int64))

class BigramModel(nn.Module):
    def __init__(self, vocab_size, dim=8):
        super().__init__()
        self.embeddings, self.head = nn.Embedding(vocab_size, dim), nn.Linear(dim, 64)

    def forward(self, batch):
        logits = self.head(self.embeddings(batch.tokens[:, :-1]))
        return F.cross_entropy(logits.flatten(0, 1), batch.labels[:, 1:].flatten() % 64)

def main(vocab_size=32000):
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    documents = [rng.integers(0, vocab_size, size=n) for n in (96, 64, 160)]
    path = os.path.join(tempfile.mkdtemp(), "shard_0.bin")
    MemmapWriter(path, vocab_size).write(documents)
    loader = DataLoader(TokenDataset(path, vocab_size, 32), batch_size=2, collate_fn=TokenBatch.from_documents)
    model, total, losses = BigramModel(vocab_size), 0, []
    for batch in loader:
        losses.append(model(batch).item())
        total += int(batch.tokens.sum())
    print(f"checksum equal {total == int(sum(d.sum() for d in documents))} loss {np.mean(losses):.3f}")

if __name__ == "__main__":
    main()
