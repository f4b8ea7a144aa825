"""
title: pandas makes the indicator columns of the classes booleans, cross entropy wants probabilities
expect: collision
needs: pandas
fix_at: 38

After https://github.com/jbohnslav/deepethogram/issues/91, https://github.com/George730/E-ResGAT/issues/5 and https://github.com/pytorch/pytorch/pull/145444.
Right: the indicator columns are made float32.
"""
import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(621)


def flowers(rows=200):
    draw = np.random.default_rng(621)
    kind = draw.choice(["iris", "lily", "rose"], rows)
    centre = {"iris": 0.0, "lily": 1.5, "rose": 3.0}
    frame = pd.DataFrame({"petal": [draw.normal(centre[k], 0.5) for k in kind], "sepal": draw.normal(0, 1, rows), "kind": kind})
    frame["colour"] = draw.choice(["blue", "white"], rows)
    return frame


class Preparation:
    """Numbers are standardised, categories become indicator columns."""

    def __init__(self, numbers, categories, target):
        self.numbers, self.categories, self.target = numbers, categories, target

    def tensors(self, frame):
        scaled = (frame[self.numbers] - frame[self.numbers].mean()) / frame[self.numbers].std()
        inputs = pd.concat([scaled, pd.get_dummies(frame[self.categories])], axis=1).to_numpy("float32")
        targets = pd.get_dummies(frame[self.target]).to_numpy()
        return torch.tensor(inputs), torch.tensor(targets)  # BORN


class Classifier(nn.Module):
    def __init__(self, inputs, classes):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(inputs, 32), nn.ReLU(), nn.Linear(32, classes))

    def forward(self, x):
        return self.net(x)


def fit(model, loader, epochs=5):
    loss_function = nn.CrossEntropyLoss(label_smoothing=0.05)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(epochs):
        for x, y in loader:
            loss = loss_function(model(x), y)  # COLLIDES
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return loss.item()


x, y = Preparation(["petal", "sepal"], ["colour"], "kind").tensors(flowers())
loader = DataLoader(TensorDataset(x, y), batch_size=32)
print("loss", round(fit(Classifier(x.shape[1], y.shape[1]), loader), 3))
