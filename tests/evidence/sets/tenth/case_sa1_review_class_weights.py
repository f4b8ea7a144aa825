"""
title: class weights from label frequencies reach the loss in float64
expect: collision
thread: https://github.com/sebsk/CS224N-Project/pull/2
fix_at: 44

Expectation, written first: counts divided by their sum are float64 in numpy, from_numpy
keeps them, the loss stores them as its weight, and cross_entropy refuses weights that are
not of the logits' float32.
"""
import numpy as np
import torch
from torch import nn


class ReviewData:
    def __init__(self, n=256, vocab=200, seed=0):
        rng = np.random.default_rng(seed)
        self.labels = rng.choice(5, size=n, p=[0.05, 0.1, 0.2, 0.3, 0.35])
        self.tokens = rng.integers(0, vocab, size=(n, 12))

    def label_weights(self):
        counts = np.bincount(self.labels, minlength=5)
        freq = counts / counts.sum()  # BORN
        return freq.max() / freq

    def batches(self, size=32):
        for i in range(0, len(self.labels), size):
            yield torch.from_numpy(self.tokens[i:i + size]), torch.from_numpy(self.labels[i:i + size])


class BagClassifier(nn.Module):
    def __init__(self, vocab=200, dim=16):
        super().__init__()
        self.embed = nn.EmbeddingBag(vocab, dim)
        self.out = nn.Linear(dim, 5)

    def forward(self, tokens):
        return self.out(self.embed(tokens))


def make_criterion(data):
    train_label_weight = torch.from_numpy(data.label_weights())  # BORN
    return nn.CrossEntropyLoss(weight=train_label_weight)


def train():
    torch.manual_seed(0)
    data, model = ReviewData(), BagClassifier()
    criterion = make_criterion(data)
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    for tokens, labels in data.batches():
        loss = criterion(model(tokens), labels)  # COLLIDES
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"last loss {loss.item():.4f}")


train()
