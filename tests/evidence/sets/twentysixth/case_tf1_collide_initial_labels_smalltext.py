"""
title: The initial labels of the active learner are int32
expect: collision
thread: https://github.com/webis-de/small-text/issues/25
fix_at: (none beside the marked)

Expectation, written first: The label list becomes a NumPy int32 array (np.int_ on Windows). from_numpy keeps int32, the
dataset stacks them and cross_entropy wants class indices as int64; it raises on the first batch.
"""
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Config:
    num_classes: int = 3
    vocab: int = 50
    emb: int = 12
    batch: int = 8


def get_train_test(rng, cfg, n=90):
    y = rng.integers(0, cfg.num_classes, n)
    x = rng.integers(0, cfg.vocab // cfg.num_classes, (n, 7)) + y[:, None] * (cfg.vocab // cfg.num_classes)
    return x, y.astype(np.int32)  # BORN


class TextDataset:
    def __init__(self, x, y):
        self.x = torch.from_numpy(x)
        self.y = torch.from_numpy(y)  # BORN

    def __len__(self):
        return len(self.x)

    def __getitem__(self, idx):
        return self.x[idx], self.y[idx]


class KimCNN(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.embedding = nn.Embedding(cfg.vocab, cfg.emb)
        self.convs = nn.ModuleList(nn.Conv1d(cfg.emb, 8, k, padding=k // 2) for k in (3, 5))
        self.fc = nn.Linear(16, cfg.num_classes)

    def forward(self, x):
        e = self.embedding(x).transpose(1, 2)
        return self.fc(torch.cat([conv(e).relu().amax(dim=2) for conv in self.convs], dim=1))


class KimCNNClassifier:
    def __init__(self, cfg):
        self.cfg = cfg

    def fit(self, train_set):
        self.model = KimCNN(self.cfg)
        optimizer = torch.optim.Adadelta(self.model.parameters())
        loader = torch.utils.data.DataLoader(train_set, batch_size=self.cfg.batch, shuffle=True)
        for _ in range(2):
            for text, cls in loader:
                optimizer.zero_grad()
                output = self.model(text)
                loss = F.cross_entropy(output, cls)  # BORN COLLIDES
                loss.backward()
                optimizer.step()
        return self

    @torch.no_grad()
    def predict_proba(self, x):
        return self.model.eval()(torch.from_numpy(x)).softmax(dim=1).numpy()


class PoolBasedActiveLearner:
    def __init__(self, cfg, x_pool):
        self.cfg, self.x_pool = cfg, x_pool

    def initialize_data(self, indices_initial, y_initial):
        self.indices_labeled = indices_initial
        train_set = TextDataset(self.x_pool[indices_initial], y_initial)
        self.classifier = KimCNNClassifier(self.cfg).fit(train_set)

    def query(self, num_samples):
        proba = self.classifier.predict_proba(self.x_pool)
        entropy = -(proba * np.log(proba)).sum(axis=1)
        entropy[self.indices_labeled] = -1
        return np.argsort(entropy)[-num_samples:]


def random_initialization_balanced(rng, y, n_samples):
    per_class = n_samples // len(np.unique(y))
    return np.concatenate([rng.choice(np.flatnonzero(y == c), per_class, replace=False) for c in np.unique(y)])


def main():
    torch.manual_seed(25)
    rng, cfg = np.random.default_rng(25), Config()
    x, y = get_train_test(rng, cfg)
    active_learner = PoolBasedActiveLearner(cfg, x)
    indices_initial = random_initialization_balanced(rng, y, 21)
    active_learner.initialize_data(indices_initial, y[indices_initial])
    print("queried", sorted(active_learner.query(5).tolist()))


if __name__ == "__main__":
    main()
