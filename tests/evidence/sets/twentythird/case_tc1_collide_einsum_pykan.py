"""
title: KAN trained on a numpy data set: double B-spline basis meets float coefficients in einsum
expect: collision
thread: https://github.com/KindXiaoming/pykan/pull/129
fix_at: 77

Expectation, written first: the data set is made from numpy arrays and stays float64, the layer's parameters are float32. The basis values are computed
from the double inputs and come out double, and einsum with the float32 coefficients dies. Either the data set is made float32 or the coefficients are
cast where the curve is evaluated.
"""
import numpy as np
import torch
import torch.nn as nn


def extend_grid(grid, k):
    h = (grid[:, [-1]] - grid[:, [0]]) / (grid.shape[1] - 1)
    for _ in range(k):
        grid = torch.cat([grid[:, [0]] - h, grid, grid[:, [-1]] + h], dim=1)
    return grid


def b_batch(x, grid, k):
    x, g = x.unsqueeze(1), grid.unsqueeze(2)
    basis = ((x >= g[:, :-1]) & (x < g[:, 1:])).to(x.dtype)
    for p in range(1, k + 1):
        left = (x - g[:, : -(p + 1)]) / (g[:, p:-1] - g[:, : -(p + 1)])
        right = (g[:, p + 1 :] - x) / (g[:, p + 1 :] - g[:, 1:-p])
        basis = left * basis[:, :-1] + right * basis[:, 1:]
    return basis


def coef2curve(x_eval, grid, coef, k):
    return torch.einsum("ij,ijk->ik", coef, b_batch(x_eval, extend_grid(grid, k), k))  # BORN COLLIDES


class KANLayer(nn.Module):
    def __init__(self, in_dim, out_dim, num=5, k=3):
        super().__init__()
        self.in_dim, self.out_dim, self.k = in_dim, out_dim, k
        size = in_dim * out_dim
        self.register_buffer("grid", torch.linspace(-1, 1, num + 1).repeat(size, 1))
        self.coef = nn.Parameter(torch.randn(size, num + k) * 0.1)
        self.scale_base = nn.Parameter(torch.ones(size))

    def forward(self, x):
        batch = x.shape[0]
        x = x.unsqueeze(1).expand(batch, self.out_dim, self.in_dim).reshape(batch, -1).T
        y = coef2curve(x, self.grid, self.coef, self.k)
        y = y + self.scale_base.unsqueeze(1) * torch.nn.functional.silu(x)
        return y.T.reshape(batch, self.out_dim, self.in_dim).sum(dim=2)


class KAN(nn.Module):
    def __init__(self, width, grid=5, k=3):
        super().__init__()
        self.layers = nn.ModuleList(KANLayer(a, b, grid, k) for a, b in zip(width[:-1], width[1:]))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def make_dataset(n=64):
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, size=(n, 2))
    y = np.exp(np.sin(np.pi * x[:, [0]]) + x[:, [1]] ** 2)
    return {"train_input": torch.from_numpy(x), "train_label": torch.from_numpy(y)}  # BORN


if __name__ == "__main__":
    torch.manual_seed(0)
    dataset = make_dataset()
    model = KAN(width=[2, 4, 1])
    optimizer = torch.optim.LBFGS(model.parameters(), lr=1.0, max_iter=5)
    pred = model(dataset["train_input"])
    print("rmse", torch.sqrt(torch.mean((pred - dataset["train_label"]) ** 2)).item())
