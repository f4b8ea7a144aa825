"""
title: default_collate makes float64 of the Python float targets of the dataset
expect: collision
thread: https://github.com/pytorch/pytorch/issues/69446
fix_at: (none beside the marked)

Expectation, written first: The dataset returns the target as a Python float; default_collate makes a float64 tensor
of them. The forward of the loss promotes, the backward asks for Float and raises "Found dtype Double but expected Float".
"""
import csv
import io
import math
import random

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


def synth_csv(n):
    rng = random.Random(69446)
    rows = ["age,rooms,distance,price"]
    for _ in range(n):
        age, rooms, dist = rng.uniform(0, 90), rng.randint(1, 8), rng.expovariate(0.2)
        price = 60 + 35 * rooms - 0.4 * age - 3 * dist + rng.gauss(0, 5)
        rows.append(f"{age:.1f},{rooms},{dist:.2f},{price:.3f}")
    return "\n".join(rows)


class HousingDataset(Dataset):
    def __init__(self, text):
        self.rows = list(csv.DictReader(io.StringIO(text)))
        prices = [float(r["price"]) for r in self.rows]
        self.mean = sum(prices) / len(prices)
        self.std = math.sqrt(sum((p - self.mean) ** 2 for p in prices) / len(prices))

    def __len__(self):
        return len(self.rows)

    def features(self, row):
        return torch.tensor([float(row["age"]) / 90, float(row["rooms"]) / 8, float(row["distance"]) / 20])

    def __getitem__(self, idx):
        row = self.rows[idx]
        target = (float(row["price"]) - self.mean) / self.std  # BORN
        return self.features(row), target  # BORN


class Regressor(nn.Module):
    def __init__(self, hidden=16):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, hidden), nn.Tanh(), nn.Linear(hidden, 1))

    def forward(self, x):
        return self.body(x).squeeze(-1)


class Trainer:
    def __init__(self, model, criterion, lr=1e-2):
        self.model, self.criterion = model, criterion
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=lr)

    def run_epoch(self, loader):
        total, count = 0.0, 0
        for x, target in loader:  # BORN
            pred = self.model(x)
            loss = self.criterion(pred, target)  # BORN
            self.optimizer.zero_grad()
            loss.backward()  # COLLIDES
            self.optimizer.step()
            total += loss.item() * len(x)
            count += len(x)
        return total / count


def main():
    torch.manual_seed(0)
    dataset = HousingDataset(synth_csv(160))
    train_loader = DataLoader(dataset, batch_size=32, shuffle=True)  # BORN
    trainer = Trainer(Regressor(), nn.HuberLoss())
    for epoch in range(3):
        print(f"epoch {epoch} huber {trainer.run_epoch(train_loader):.3f}")


if __name__ == "__main__":
    main()
