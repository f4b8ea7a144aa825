"""
title: similarity scores of a sentence pair set are collated to float64 labels
expect: collision
thread: https://github.com/huggingface/sentence-transformers/issues/770
fix_at: 18, 48, 59, 68, 78, 80

Expectation, written first: the scores come from a numpy column and stay float64 through the collate; the loss is
float64 over a float32 cosine, and its backward refuses to hand a double gradient on.
"""
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class InputExample:
    def __init__(self, texts, label):
        self.texts, self.label = texts, label


class PairDataset(Dataset):
    def __init__(self, examples):
        self.examples = examples

    def __len__(self):
        return len(self.examples)

    def __getitem__(self, i):
        return self.examples[i]


class BagEncoder(nn.Module):
    def __init__(self, buckets=200, dim=32):
        super().__init__()
        self.buckets = buckets
        self.bag = nn.EmbeddingBag(buckets, dim, mode="mean")

    def tokenize(self, texts):
        rows = [[sum(map(ord, w)) % self.buckets for w in t.split()] for t in texts]
        offsets = torch.tensor([0] + [len(r) for r in rows[:-1]]).cumsum(0)
        return torch.tensor(sum(rows, [])), offsets

    def forward(self, feature):
        return self.bag(*feature)

    def smart_batching_collate(self, batch):
        texts = list(zip(*[e.texts for e in batch]))
        labels = torch.as_tensor(np.stack([e.label for e in batch]))  # BORN
        return [self.tokenize(column) for column in texts], labels


class CosineSimilarityLoss(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model, self.loss_fct = model, nn.HuberLoss()

    def forward(self, features, labels):
        a, b = [self.model(f) for f in features]
        return self.loss_fct(torch.cosine_similarity(a, b), labels)


def fit(model, examples, epochs=2):
    loader = DataLoader(PairDataset(examples), batch_size=4, collate_fn=model.smart_batching_collate)
    criterion = CosineSimilarityLoss(model)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(epochs):
        for features, labels in loader:
            loss = criterion(features, labels)
            opt.zero_grad()
            loss.backward()  # COLLIDES
            opt.step()
    return loss.item()


torch.manual_seed(0)
words = "a cat sat on the mat while dogs ran far away".split()
rng = np.random.default_rng(0)
gold = rng.uniform(0, 5, 12) / 5.0  # BORN
pairs = [[" ".join(rng.choice(words, 5)), " ".join(rng.choice(words, 5))] for _ in gold]
print(f"{fit(BagEncoder(), [InputExample(p, g) for p, g in zip(pairs, gold)]):.4f}")
