"""
title: a packed corpus is stored as uint16 because the vocabulary has 32000 entries
expect: clean
thread: https://github.com/princeton-nlp/LLM-Shearing/issues/65
measured: blocks 375, highest token 31999, loss 1.1336

Expectation, written first: all token numbers are below 32000 and fit; blocks are made int64 before they are looked up,
and the domain weights kept in float16 are quarters. The loss is that of a corpus stored as int64.
"""
import io

import numpy as np
import torch
from torch import nn

VOCAB = 32000


class Tokenizer:
    """documents of three domains, each with its own slice of the vocabulary"""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def document(self, domain, length):
        low = VOCAB - 600 * (domain + 1)
        walk = self.rng.integers(1, 4, length).cumsum() % 600
        return low + walk


class Shard:
    def __init__(self, dtype=np.uint16):
        self.dtype, self.buffer = dtype, io.BytesIO()

    def write(self, tokens):
        self.buffer.write(np.asarray(tokens).astype(self.dtype).tobytes())

    def blocks(self, length):
        flat = np.frombuffer(self.buffer.getvalue(), dtype=self.dtype)
        count = len(flat) // length
        return flat[: count * length].reshape(count, length)


class PackedDataset(torch.utils.data.Dataset):
    def __init__(self, shards, length):
        self.rows = [(d, row) for d, s in enumerate(shards) for row in s.blocks(length)]
        self.weight = torch.tensor([0.25, 0.25, 0.5], dtype=torch.float16)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        domain, row = self.rows[i]
        return torch.from_numpy(row.astype(np.int64)), self.weight[domain].float()


class StepModel(nn.Module):
    """guesses the size of the next step from the last two tokens"""

    def __init__(self, width=16):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, width)
        self.out = nn.Linear(2 * width, 4)

    def forward(self, tokens):
        e = self.embed(tokens)
        return self.out(torch.cat([e[:, :-2], e[:, 1:-1]], dim=-1))


def step_loss(model, tokens, weight):
    target = (tokens[:, 2:] - tokens[:, 1:-1]).remainder(600).clamp(max=3)
    each = nn.functional.cross_entropy(model(tokens).flatten(0, 1), target.flatten(), reduction="none")
    return (each.view(len(tokens), -1).mean(1) * weight).sum() / weight.sum()


def main():
    torch.manual_seed(0)
    tokenizer, shards = Tokenizer(seed=5), [Shard() for _ in range(3)]
    for n in range(60):
        shards[n % 3].write(tokenizer.document(n % 3, 400))
    dataset = PackedDataset(shards, 64)
    loader = torch.utils.data.DataLoader(dataset, batch_size=32, shuffle=True, generator=torch.Generator().manual_seed(3))
    model = StepModel()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    for _ in range(2):
        for tokens, weight in loader:
            optimizer.zero_grad()
            loss = step_loss(model, tokens, weight)
            loss.backward()
            optimizer.step()
    top = max(int(row.max()) for _, row in dataset.rows)
    print(f"blocks {len(dataset)}, highest token {top}, loss {loss.item():.4f}")


main()
