"""
title: one-hot encoding of the wine scores: scatter_ refuses a float index
expect: collision
thread: https://github.com/deep-learning-with-pytorch/dlwpt-code/issues/12
fix_at: 52, 53

Expectation, written first: the wine table is one float32 tensor and the score column is sliced off as the target without a
cast to long. scatter_ takes the scores as index and refuses float32.
"""
import csv
import io

import numpy as np
import torch
from torch import nn


def write_table(rows=60, seed=5):
    rng = np.random.default_rng(seed)
    columns = ["fixed acidity", "residual sugar", "density", "pH", "alcohol", "quality"]
    buffer = io.StringIO()
    writer = csv.writer(buffer, delimiter=";")
    writer.writerow(columns)
    for _ in range(rows):
        quality = int(rng.integers(3, 10))
        features = rng.normal([6.8, 6.4, 0.99, 3.2, 8.0 + quality / 3], [0.8, 5.0, 0.01, 0.15, 0.6])
        writer.writerow([f"{v:.4f}" for v in features] + [quality])
    return buffer.getvalue()


def load_wine(text):
    lines = io.StringIO(text)
    col_list = next(csv.reader(io.StringIO(text), delimiter=";"))
    wineq_numpy = np.loadtxt(lines, dtype=np.float32, delimiter=";", skiprows=1)
    return torch.from_numpy(wineq_numpy), col_list


def split(wineq):
    data = wineq[:, :-1]
    target = wineq[:, -1]  # BORN
    return data, target


def normalize(data):
    data_mean = torch.mean(data, dim=0)
    data_var = torch.var(data, dim=0)
    return (data - data_mean) / torch.sqrt(data_var)


def one_hot(target, num_classes=10):
    target_onehot = torch.zeros(target.shape[0], num_classes)
    index = target.unsqueeze(1)
    target_onehot.scatter_(1, index, 1.0)  # COLLIDES
    return target_onehot


def fit(data, target_onehot, epochs=60):
    model = nn.Linear(data.shape[1], target_onehot.shape[1])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for epoch in range(1, epochs + 1):
        log_prob = torch.log_softmax(model(data), dim=1)
        loss = -(target_onehot * log_prob).sum(1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if epoch % 20 == 0:
            print(f"epoch {epoch} loss {loss.item():.4f}")
    return model


def main():
    torch.manual_seed(0)
    wineq, col_list = load_wine(write_table())
    data, target = split(wineq)
    print(wineq.shape, len(col_list))
    fit(normalize(data), one_hot(target))


if __name__ == "__main__":
    main()
