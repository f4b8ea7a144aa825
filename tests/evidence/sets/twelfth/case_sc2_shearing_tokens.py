"""
title: tokenized shards of a multilingual corpus are written as uint16 although the vocabulary is larger
expect: silent:overflow|wraparound|integer-overflow
thread: https://github.com/princeton-nlp/LLM-Shearing/issues/65
measured: distinct ids 40 of a vocabulary of 119547, next-token accuracy 50%
widened: distinct ids 80 of a vocabulary of 119547, next-token accuracy 100%

Expectation, written first: ids above 65535 come back as other, valid ids; a bigram model trained on the shards cannot
tell the two scripts apart where their ids coincide. The sample weights kept in float16 are ones and make no difference.
"""
import io

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

VOCAB = 119_547


class TwoScriptTokenizer:
    """one script has the small ids, the other those above 2**16"""

    scripts = {"latin": (100, 140), "devanagari": (65_536 + 100, 65_536 + 140)}
    jump = {"latin": 7, "devanagari": 11}

    def encode(self, script, start, length):
        lo, hi = self.scripts[script]
        return [lo + (start + self.jump[script] * i) % (hi - lo) for i in range(length)]


class ShardWriter:
    def __init__(self):
        self.shards = []

    def write(self, documents):
        flat = torch.tensor([t for d in documents for t in d]).to(torch.uint16)  # BORN
        stream = io.BytesIO()
        torch.save({"tokens": flat, "weight": torch.ones(len(documents), dtype=torch.float16)}, stream)
        self.shards.append(stream.getvalue())


class ShardDataset(Dataset):
    def __init__(self, shards, length):
        loaded = [torch.load(io.BytesIO(s)) for s in shards]
        self.rows = torch.cat([x["tokens"].to(torch.int64).view(-1, length) for x in loaded])
        self.weight = torch.cat([x["weight"] for x in loaded]).float()

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i], self.weight[i]


class BigramLM(nn.Module):
    def __init__(self, rows):
        super().__init__()
        self.used = torch.unique(rows)
        self.embed = nn.Embedding(len(self.used), 64)
        self.out = nn.Linear(64, len(self.used))

    def compact(self, ids):
        return torch.searchsorted(self.used, ids)

    def forward(self, ids):
        return self.out(self.embed(self.compact(ids)))


def train(dataset, steps=120):
    torch.manual_seed(0)
    model = BigramLM(dataset.rows)
    opt = torch.optim.Adam(model.parameters(), lr=0.03)
    loader = DataLoader(dataset, batch_size=32, shuffle=True)
    for _, (rows, weight) in zip(range(steps), (b for _ in range(99) for b in loader)):
        logits = model(rows[:, :-1])
        loss = nn.functional.cross_entropy(logits.transpose(1, 2), model.compact(rows[:, 1:]), reduction="none")
        opt.zero_grad()
        (loss.mean(1) * weight).mean().backward()
        opt.step()
    with torch.no_grad():
        guess = model.used[model(dataset.rows[:, :-1]).argmax(-1)]
    return (guess == dataset.rows[:, 1:]).double().mean().item(), len(model.used)


tokenizer, writer = TwoScriptTokenizer(), ShardWriter()
for script in ("latin", "devanagari"):
    writer.write([tokenizer.encode(script, s, 24) for s in range(256)])
accuracy, used = train(ShardDataset(writer.shards, 24))
print(f"distinct ids {used} of a vocabulary of {VOCAB}, next-token accuracy {100 * accuracy:.0f}%")
