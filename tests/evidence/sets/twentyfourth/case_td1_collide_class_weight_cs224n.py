"""
title: Class weights computed in NumPy reach the cross entropy as double
expect: collision
thread: https://github.com/sebsk/CS224N-Project/pull/2
fix_at: (none beside the marked)

Expectation, written first: The label weights are counts divided in NumPy, hence float64, and
torch.from_numpy keeps that. CrossEntropyLoss takes the weight as it is; the loss of the float32 logits
raises for Double weights.
"""
import numpy as np
import torch
import torch.nn as nn
from torch.nn.utils.rnn import pack_padded_sequence


class Vocab:
    def __init__(self, sents):
        self.word2id = {"<pad>": 0, "<unk>": 1}
        for w in sorted({w for s in sents for w in s}):
            self.word2id[w] = len(self.word2id)

    def to_input_tensor(self, sents):
        width = max(map(len, sents))
        return torch.tensor([[self.word2id.get(w, 1) for w in s] + [0] * (width - len(s)) for s in sents])


class BaselineLSTM(nn.Module):
    def __init__(self, vocab, embed_size, hidden_size, n_class):
        super().__init__()
        self.vocab = vocab
        self.embedding = nn.Embedding(len(vocab.word2id), embed_size, padding_idx=0)
        self.lstm = nn.LSTM(embed_size, hidden_size, batch_first=True)
        self.hidden_to_softmax = nn.Linear(hidden_size, n_class)

    def forward(self, sents):
        lengths = [len(s) for s in sents]
        x = self.embedding(self.vocab.to_input_tensor(sents))
        _, (h, _) = self.lstm(pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False))
        return self.hidden_to_softmax(h[-1])


def batch_iter(sents, labels, batch_size):
    for i in range(0, len(sents), batch_size):
        yield sents[i:i + batch_size], labels[i:i + batch_size]


def make_data(rng, n=48, n_class=3):
    words = ["movie", "good", "bad", "plain", "very", "not", "plot", "actor"]
    sents = [list(rng.choice(words, size=rng.integers(2, 7))) for _ in range(n)]
    labels = rng.choice(n_class, size=n, p=[0.6, 0.3, 0.1])
    return sents, labels


def train(n_class=3, batch_size=16):
    torch.manual_seed(20)
    sents, labels = make_data(np.random.default_rng(20), n_class=n_class)
    counts = np.bincount(labels, minlength=n_class)
    label_weight = counts.sum() / (n_class * np.maximum(counts, 1))  # BORN
    train_label_weight = torch.from_numpy(label_weight)  # BORN

    model = BaselineLSTM(Vocab(sents), 12, 16, n_class)
    cn_loss = nn.CrossEntropyLoss(weight=train_label_weight, reduction="mean")  # BORN
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(2):
        total = 0.0
        for batch_sents, batch_labels in batch_iter(sents, labels, batch_size):
            optimizer.zero_grad()
            pre_softmax = model(batch_sents)
            loss = cn_loss(pre_softmax, torch.tensor(batch_labels, dtype=torch.long))  # COLLIDES
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            total += loss.item() * len(batch_sents)
        print("epoch", epoch, "loss", round(total / len(sents), 4))


if __name__ == "__main__":
    train()
