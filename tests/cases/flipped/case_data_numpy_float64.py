"""
title: a bias spread out by numpy makes one parameter of a float32 network float64
expect: collision
culprit: layers.0.bias

The rows come in float32. Sixteen numbers of the first layer are what numpy made them, behind a parameter whose object
and name are the old ones.
"""
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Table(Dataset):
    def __init__(self, rows, targets):
        self.rows = rows
        self.targets = torch.tensor(targets, dtype=torch.float32)
        self.mean, self.std = rows.mean(axis=0), rows.std(axis=0)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row = torch.from_numpy((self.rows[index] - self.mean) / self.std).float()
        return {"row": row, "target": self.targets[index]}


class Regressor(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.drop = nn.Dropout(0.1)
        self.layers = nn.Sequential(nn.Linear(width, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, row):
        return self.layers(self.drop(row)).squeeze(-1)  # COLLIDES


def main():
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    rows = rng.normal(3.0, 2.0, size=(32, 6))
    table = Table(rows, rows.sum(axis=1).tolist())
    model = Regressor(width=6)
    model.layers[0].bias.data = torch.from_numpy(rng.uniform(-1.0, 1.0, size=16))  # BORN
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for batch in DataLoader(table, batch_size=8, shuffle=True):
        loss = F.mse_loss(model(batch["row"]), batch["target"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("loss", round(loss.item(), 3))


if __name__ == "__main__":
    main()
