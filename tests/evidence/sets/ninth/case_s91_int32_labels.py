"""
title: binarised token shards stored as int32 reach cross_entropy as targets
expect: collision
thread: https://github.com/mosaicml/llm-foundry/issues/321
fix_at: 29, 53

Expectation, written first: the shard reader decodes int32, the embedding takes int32
happily, and the loss is the first to insist on int64 targets. Birth: the dtype of the
reader; a cast at the batch or at the loss is just as right.
"""
import numpy as np
import torch
from torch import nn


def write_shard(rng, n_samples, seq_len, vocab):
    return [rng.integers(0, vocab, seq_len).astype(np.int32).tobytes() for _ in range(n_samples)]


class ShardDataset(torch.utils.data.Dataset):
    def __init__(self, shard, seq_len):
        self.shard, self.seq_len = shard, seq_len

    def __len__(self):
        return len(self.shard)

    def __getitem__(self, i):
        raw = np.frombuffer(self.shard[i], dtype=np.int32)  # BORN
        tokens = torch.from_numpy(raw[: self.seq_len].copy())
        return tokens[:-1], tokens[1:]


class BigramLM(nn.Module):
    def __init__(self, vocab, dim=24):
        super().__init__()
        self.tok = nn.Embedding(vocab, dim)
        self.mix = nn.Linear(dim, dim)
        self.head = nn.Linear(dim, vocab)

    def forward(self, ids):
        return self.head(torch.tanh(self.mix(self.tok(ids))))


def train(vocab=50, seq_len=12):
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    data = ShardDataset(write_shard(rng, 16, seq_len, vocab), seq_len)
    loader = torch.utils.data.DataLoader(data, batch_size=8)
    model = BigramLM(vocab)
    opt = torch.optim.SGD(model.parameters(), lr=0.5)
    for ids, labels in loader:
        logits = model(ids)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())  # COLLIDES
        opt.zero_grad()
        loss.backward()
        opt.step()
        print("loss", round(loss.item(), 4))


if __name__ == "__main__":
    train()
