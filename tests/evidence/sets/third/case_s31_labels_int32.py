"""
title: integer labels kept in numpy's int32 by the loader
expect: collision
fix_at: 33, 54

After webis-de/small-text#25 and dragen1860/MAML-Pytorch#45 (expected scalar type Long but found Int).
Right change: astype(np.int64) in the reader, or labels.long() at the loss.
"""
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


def read_table(rows, seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 10)).astype(np.float32)
    w = rng.normal(size=(10, 4))
    y = (x @ w).argmax(1)
    return x, y.astype(np.int32)  # BORN


class Episodes(Dataset):
    def __init__(self, seed, shots=8):
        x, y = read_table(64, seed)
        self.x = torch.from_numpy(x).view(-1, shots, 10)
        self.y = torch.from_numpy(y).view(-1, shots)  # BORN

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


class Learner(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(10, 32), nn.ReLU())
        self.head = nn.Linear(32, 4)
        self.criterion = nn.CrossEntropyLoss(label_smoothing=0.05)

    def inner_loss(self, x, y):
        logits = self.head(self.body(x))
        return self.criterion(logits.flatten(0, 1), y.flatten())  # COLLIDES


def train(epochs=2):
    torch.manual_seed(0)
    model = Learner()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(epochs):
        for x, y in DataLoader(Episodes(epoch), batch_size=2):
            loss = model.inner_loss(x, y)
            opt.zero_grad()
            loss.backward()
            opt.step()
    return loss.item()


print("final loss", train())
