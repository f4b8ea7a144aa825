"""
title: Token ids above 32767 stored as uint16 and widened on reading
expect: clean
thread: https://github.com/allenai/dolma/issues/142
measured: tokens 4836 bytes 9672 max id 50279 documents 119 above int16 1701 / loss 6.25 finite True
suspect: 34 exact (every id is below 65536)

Expectation, written first: The vocabulary has 50280 entries, so every id fits into uint16 although not into int16. The reader
takes the same dtype and widens to int64 before the embedding; nothing wraps, counts and loss are those of the lists.
"""
import io

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

VOCAB_SIZE, EOS = 50280, 50279


def dtype_for(vocab_size):
    return np.uint16 if vocab_size <= np.iinfo(np.uint16).max + 1 else np.uint32


class MemmapWriter:
    def __init__(self, dtype):
        self.dtype = dtype
        self.buffer = io.BytesIO()
        self.num_tokens = 0

    def write_many(self, documents):
        for tokens in documents:
            ids = np.asarray(tokens + [EOS])
            self.buffer.write(ids.astype(self.dtype).tobytes())
            self.num_tokens += len(ids)


class MemMapDataset:
    def __init__(self, raw, chunk_size, memmap_dtype):
        data = np.frombuffer(raw, dtype=memmap_dtype)
        self.chunks = data[:len(data) // chunk_size * chunk_size].reshape(-1, chunk_size)

    def __len__(self):
        return len(self.chunks)

    def __getitem__(self, idx):
        return {"input_ids": torch.from_numpy(self.chunks[idx].astype(np.int64))}


def collate(items):
    return torch.stack([item["input_ids"] for item in items])


class TinyLM(nn.Module):
    def __init__(self, vocab, dim, num_hashes=512):
        super().__init__()
        self.wte = nn.Embedding(vocab, dim)
        self.ff = nn.Sequential(nn.Linear(dim, 4 * dim), nn.SiLU(), nn.Linear(4 * dim, num_hashes))

    def forward(self, ids):
        return self.ff(self.wte(ids))


def make_documents(rng, n):
    documents = []
    for _ in range(n):
        base = int(rng.integers(0, 200)) * 250
        documents.append([(base + int(s)) % EOS for s in rng.integers(0, 40, rng.integers(20, 60))])
    return documents


def main():
    torch.manual_seed(142)
    rng = np.random.default_rng(142)
    documents = make_documents(rng, 120)
    dtype = dtype_for(VOCAB_SIZE)
    writer = MemmapWriter(dtype)
    writer.write_many(documents)
    dataset = MemMapDataset(writer.buffer.getvalue(), 32, dtype)
    everything = torch.cat([dataset[i]["input_ids"] for i in range(len(dataset))])
    print("tokens", writer.num_tokens, "bytes", len(writer.buffer.getvalue()), "max id", everything.max().item(),
          "documents", (everything == EOS).sum().item(), "above int16", (everything > 32767).sum().item())
    model = TinyLM(VOCAB_SIZE, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for step in range(10):
        ids = collate([dataset[(step * 8 + j) % len(dataset)] for j in range(8)])
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten() % 512)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("loss", round(loss.item(), 2), "finite", bool(torch.isfinite(loss)))


if __name__ == "__main__":
    main()
