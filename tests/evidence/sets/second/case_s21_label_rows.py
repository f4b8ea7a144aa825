"""
title: class labels are kept as int32 rows in the dataset, the loss wants int64
expect: collision
fix_at: 39

After MorvanZhou/NLP-Tutorials#28 and tobiasvanderwerff/full-page-handwriting-recognition#4: an embedding takes int32 ids, so
the model runs; the cross entropy does not. Right: hand out the labels as int64.
"""
import numpy as np
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(3)
PAD = 0


def read_corpus(rows=24, longest=9):
    rng = np.random.default_rng(0)
    lengths = rng.integers(4, longest + 1, rows)
    text = np.zeros((rows, longest), dtype=np.int64)
    for row, n in enumerate(lengths):
        text[row, :n] = rng.integers(1, 30, n)
    return text


class Tagging(Dataset):
    """Words and their tags; a tag is the word's class."""

    def __init__(self, text):
        self.words = torch.from_numpy(text)
        self.tags = torch.from_numpy((text % 5).astype(np.int32))  # BORN

    def __len__(self):
        return len(self.words)

    def __getitem__(self, index):
        return {"words": self.words[index], "tags": self.tags[index]}


class Tagger(nn.Module):
    def __init__(self, vocab=30, dim=16, tags=5):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim, padding_idx=PAD)
        self.rnn = nn.GRU(dim, dim, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * dim, tags)

    def forward(self, words):
        states, _ = self.rnn(self.embed(words))
        return self.head(states)


def evaluate(model, batch):
    keep = batch["words"] != PAD
    hit = model(batch["words"]).argmax(-1) == batch["tags"]
    return hit[keep].float().mean().item()


def train(model, loader, epochs=2):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(epochs):
        for batch in loader:
            logits = model(batch["words"])
            loss = F.cross_entropy(logits.transpose(1, 2), batch["tags"])  # COLLIDES
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, round(loss.item(), 3), round(evaluate(model, batch), 2))


loader = DataLoader(Tagging(read_corpus()), batch_size=8, shuffle=True)
train(Tagger(), loader)
