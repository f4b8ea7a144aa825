"""
title: tokens of a 32000 word vocabulary stored as uint16 and widened to int64 when a batch is read
expect: clean
thread: https://github.com/princeton-nlp/LLM-Shearing/issues/65
measured: largest id 31952 changed 0; loss stored 14.26407 original 14.26407
suspect: 31 fits

Expectation, written first: the preprocessing narrows int64 token ids to uint16. The vocabulary has 32000 entries, so every id fits, and the reader
widens to int64 before the embedding. The round trip changes nothing and the losses are equal.
"""
import io

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

VOCAB_SIZE = 32000


def tokenize_documents(n_docs, g):
    docs = []
    for _ in range(n_docs):
        length = int(torch.randint(40, 90, (1,), generator=g))
        docs.append(torch.cat([torch.tensor([1]), torch.randint(3, VOCAB_SIZE, (length,), generator=g), torch.tensor([2])]))
    return torch.cat(docs)


def write_shard(tokens):
    buffer = io.BytesIO()
    torch.save(tokens.to(torch.uint16), buffer)
    buffer.seek(0)
    return buffer


class PackedTokens(Dataset):
    def __init__(self, tokens, seq_len):
        self.tokens, self.seq_len = tokens, seq_len

    @classmethod
    def from_shard(cls, buffer, seq_len):
        return cls(torch.load(buffer, weights_only=True), seq_len)

    def __len__(self):
        return (self.tokens.shape[0] - 1) // self.seq_len

    def __getitem__(self, i):
        start = i * self.seq_len
        chunk = self.tokens[start : start + self.seq_len + 1].to(torch.int64)
        return chunk[:-1], chunk[1:]


class TinyLM(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.wte = nn.Embedding(VOCAB_SIZE, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.norm = nn.LayerNorm(dim)

    def forward(self, ids):
        h, _ = self.rnn(self.wte(ids))
        return F.linear(self.norm(h), self.wte.weight)


def evaluate(dataset):
    torch.manual_seed(0)
    model = TinyLM().eval()
    total, count = 0.0, 0
    with torch.no_grad():
        for inputs, targets in DataLoader(dataset, batch_size=4):
            logits = model(inputs)
            total += F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum").item()
            count += targets.numel()
    return total / count


def main():
    tokens = tokenize_documents(12, torch.Generator().manual_seed(0))
    stored = PackedTokens.from_shard(write_shard(tokens), seq_len=32)
    changed = int((stored.tokens.to(torch.int64) != tokens).sum())
    print("largest id", int(tokens.max()), "changed", changed)
    print("loss stored %.5f original %.5f" % (evaluate(stored), evaluate(PackedTokens(tokens, 32))))


if __name__ == "__main__":
    main()
