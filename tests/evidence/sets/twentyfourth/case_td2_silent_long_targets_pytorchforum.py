"""
title: regression targets are all zero after from_numpy(...).type(LongTensor)
expect: silent:downcast|precision-loss|underflow
thread: https://github.com/pytorch/pytorch/issues/3346
measured: train loss 0.0001 validation R2 -0.011
widened: train loss 0.0004 validation R2 0.994; innocent: train loss 0.0001 validation R2 -0.011
suspect: 28 tolerant (standardised features keep seven digits in float32)

Expectation, written first: the targets lie between -1 and 1 and are cast to int64 for the data set, so nearly all
become zero; the network learns to say zero and explains nothing of the validation targets. Remedy: a float tensor. The
cast of the features from float64 to float32 is harmless.
"""
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def make_regression(num_samples, num_features, num_targets, seed):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((num_samples, num_features))
    w = rng.standard_normal((num_features, num_targets)) * 0.12
    y = np.tanh(x @ w) * 0.95
    return x, y


def to_dataset(x_train, y_train):
    x_tensor = torch.from_numpy(x_train).type(torch.FloatTensor)
    y_tensor = torch.from_numpy(y_train).type(torch.LongTensor)  # BORN
    return TensorDataset(x_tensor, y_tensor)


class Regressor(nn.Module):
    def __init__(self, num_features, num_targets):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(num_features, 32), nn.Tanh(), nn.Linear(32, num_targets))

    def forward(self, x):
        return self.body(x.to(self.body[0].weight.dtype))


def train(model, loader, epochs):
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    criterion = nn.MSELoss()
    loss = None
    for _ in range(epochs):
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = criterion(model(inputs), targets.float())
            loss.backward()
            optimizer.step()
    return loss.item()


@torch.no_grad()
def r2_score(model, x, y):
    target = torch.from_numpy(y).float()
    pred = model(torch.from_numpy(x).float())
    residual = (target - pred).pow(2).sum()
    return (1 - residual / (target - target.mean(0)).pow(2).sum()).item()


def main():
    torch.manual_seed(3346)
    x, y = make_regression(900, 12, 6, seed=3346)
    x_train, y_train, x_val, y_val = x[:700], y[:700], x[700:], y[700:]
    loader = DataLoader(to_dataset(x_train, y_train), batch_size=64, shuffle=True)
    model = Regressor(12, 6)
    loss = train(model, loader, epochs=30)
    print(f"train loss {loss:.4f} validation R2 {r2_score(model, x_val, y_val):.3f}")


main()
