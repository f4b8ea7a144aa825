"""
title: make_moons data is float64 and meets the float32 spline coefficients in einsum
expect: collision
thread: https://github.com/KindXiaoming/pykan/issues/105
fix_at: (none beside the marked)

Expectation, written first: The classification example makes its data in NumPy, from_numpy keeps float64. The B-spline
basis of double inputs is double, the coefficients are float32; einsum does not promote and raises in coef2curve.
"""
import numpy as np
import torch
import torch.nn as nn


def make_moons(n_samples, noise, rng):
    t = rng.uniform(0, np.pi, n_samples)
    y = rng.integers(0, 2, n_samples)
    x = np.where(y == 0, np.cos(t), 1 - np.cos(t))
    z = np.where(y == 0, np.sin(t), 0.5 - np.sin(t))
    return np.stack([x, z], axis=1) + rng.normal(scale=noise, size=(n_samples, 2)), y  # BORN


def B_batch(x, grid, k):
    x, g = x.unsqueeze(2), grid.unsqueeze(0)
    if k == 0:
        return ((x >= g[:, :, :-1]) & (x < g[:, :, 1:])).to(x.dtype)
    b = B_batch(x[:, :, 0], grid, k - 1)
    left = (x - g[:, :, :-(k + 1)]) / (g[:, :, k:-1] - g[:, :, :-(k + 1)]) * b[:, :, :-1]
    right = (g[:, :, k + 1:] - x) / (g[:, :, k + 1:] - g[:, :, 1:-k]) * b[:, :, 1:]
    return left + right


def coef2curve(x_eval, grid, coef, k):
    return torch.einsum("bij,ioj->bio", B_batch(x_eval, grid, k), coef)  # BORN COLLIDES


def extend_grid(grid, k):
    h = (grid[:, [-1]] - grid[:, [0]]) / (grid.shape[1] - 1)
    for _ in range(k):
        grid = torch.cat([grid[:, [0]] - h, grid, grid[:, [-1]] + h], dim=1)
    return grid


class KANLayer(nn.Module):
    def __init__(self, in_dim, out_dim, num=5, k=3, grid_range=(-2.5, 2.5)):
        super().__init__()
        self.k = k
        grid = torch.linspace(*grid_range, steps=num + 1).repeat(in_dim, 1)
        self.register_buffer("grid", extend_grid(grid, k))
        self.coef = nn.Parameter(torch.randn(in_dim, out_dim, num + k) * 0.1)  # BORN
        self.scale_base = nn.Parameter(torch.randn(in_dim, out_dim) * in_dim ** -0.5)
        self.base_fun = nn.SiLU()

    def forward(self, x):
        base = self.base_fun(x).unsqueeze(2) * self.scale_base
        y = coef2curve(x, self.grid, self.coef, self.k)
        return (base + y).sum(dim=1)


class KAN(nn.Module):
    def __init__(self, width, grid=5, k=3):
        super().__init__()
        self.act_fun = nn.ModuleList(KANLayer(i, o, grid, k) for i, o in zip(width[:-1], width[1:]))

    def forward(self, x):
        for layer in self.act_fun:
            x = layer(x)
        return x

    def fit(self, dataset, steps=5, loss_fn=None, metrics=()):
        opt = torch.optim.Adam(self.parameters(), lr=1e-2)
        results = {}
        for _ in range(steps):
            loss = loss_fn(self(dataset["train_input"]), dataset["train_label"])
            opt.zero_grad()
            loss.backward()
            opt.step()
            for metric in metrics:
                results.setdefault(metric.__name__, []).append(metric())
        return results


def main():
    torch.manual_seed(105)
    rng = np.random.default_rng(105)
    dataset = {}
    train_input, train_label = make_moons(100, 0.1, rng)  # BORN
    dataset["train_input"] = torch.from_numpy(train_input)  # BORN
    dataset["train_label"] = torch.from_numpy(train_label)
    model = KAN(width=[2, 2], grid=3, k=3)

    def train_acc():
        return (model(dataset["train_input"]).argmax(dim=1) == dataset["train_label"]).float().mean().item()

    results = model.fit(dataset, steps=5, loss_fn=nn.CrossEntropyLoss(), metrics=(train_acc,))
    print("acc", [round(a, 2) for a in results["train_acc"]])


if __name__ == "__main__":
    main()
