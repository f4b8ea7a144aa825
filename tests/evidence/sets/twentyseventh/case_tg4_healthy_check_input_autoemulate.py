"""
title: _check_input turns the float64 simulation data into float32 for the PyTorch emulators
expect: clean
thread: https://github.com/alan-turing-institute/autoemulate/issues/139
measured: R2 0.998 rmse 1.95 of 41.7
suspect: 20 negligible (standardised data of order one)

Expectation, written first: inputs and outputs are standardised in float64 and cut to float32 only for the network. The
emulator error is a few per cent, seven digits are plenty, and the scores of the float32 network on the float64 test data
are the same to what is printed.
"""
import numpy as np
import torch
import torch.nn as nn


def _check_input(X, y):
    X, y = torch.as_tensor(X), torch.as_tensor(y)
    if X.dtype != torch.float32:
        X, y = X.float(), y.float()
    return X, y


class StandardScaler:
    def fit(self, X):
        self.mean_, self.scale_ = X.mean(axis=0), X.std(axis=0)
        return self

    def transform(self, X):
        return (X - self.mean_) / self.scale_

    def inverse_transform(self, X):
        return X * self.scale_ + self.mean_


def simulate_projectile(X):
    """range of a projectile with linear drag, X columns: log drag, speed"""
    c, v = 10.0 ** X[:, 0], X[:, 1]
    t = (v / 9.81) * np.exp(-c)
    return (v * t * (1 - 0.3 * np.tanh(c)))[:, None]


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 1))

    def forward(self, x):
        return self.net(x)


class NeuralNetEmulator:
    def __init__(self, epochs=120, lr=1e-2):
        self.model, self.epochs, self.lr = MLP(), epochs, lr

    def fit(self, X, y):
        X, y = _check_input(X, y)
        optimizer = torch.optim.Adam(self.model.parameters(), lr=self.lr)
        for _ in range(self.epochs):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(self.model(X), y)
            loss.backward()
            optimizer.step()
        return self

    @torch.no_grad()
    def predict(self, X):
        X, _ = _check_input(X, X)
        return self.model(X).double().numpy()


def r2_score(y, pred):
    return 1 - ((y - pred) ** 2).sum() / ((y - y.mean()) ** 2).sum()


def main():
    torch.manual_seed(139)
    rng = np.random.default_rng(139)
    X = np.column_stack([rng.uniform(-3, 0, 300), rng.uniform(5, 40, 300)])
    y = simulate_projectile(X)
    sx, sy = StandardScaler().fit(X[:200]), StandardScaler().fit(y[:200])
    emulator = NeuralNetEmulator().fit(sx.transform(X[:200]), sy.transform(y[:200]))
    pred = sy.inverse_transform(emulator.predict(sx.transform(X[200:])))
    print(f"R2 {r2_score(y[200:], pred):.3f} rmse {np.sqrt(((y[200:] - pred) ** 2).mean()):.2f} of {y.std():.1f}")


main()
