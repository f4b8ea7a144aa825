"""
title: exact Gaussian process: float32 inputs and float64 targets meet in the Cholesky solve
expect: collision
thread: https://github.com/cornellius-gp/gpytorch/issues/2003
fix_at: 71

Expectation, written first: the inputs are cast to float32 but the targets come from the data frame as float64. The
marginal likelihood solves the float32 Cholesky factor against the double residual and raises. The targets need the
dtype of the inputs and the model.
"""
import math

import numpy as np
import pandas as pd
import torch
import torch.nn as nn
import torch.nn.functional as F


class ScaleRBFKernel(nn.Module):
    def __init__(self, ard_num_dims):
        super().__init__()
        self.raw_lengthscale = nn.Parameter(torch.zeros(ard_num_dims))
        self.raw_outputscale = nn.Parameter(torch.zeros(()))

    def forward(self, x1, x2):
        ls = F.softplus(self.raw_lengthscale)
        diff = (x1 / ls)[:, None] - (x2 / ls)[None]
        return F.softplus(self.raw_outputscale) * torch.exp(-0.5 * diff.pow(2).sum(-1))


class ExactGPModel(nn.Module):
    def __init__(self, train_x, train_y):
        super().__init__()
        self.train_x, self.train_y = train_x, train_y
        self.mean_constant = nn.Parameter(torch.zeros(()))
        self.covar_module = ScaleRBFKernel(train_x.shape[-1])
        self.raw_noise = nn.Parameter(torch.tensor(-2.0))

    def train_cholesky(self):
        K = self.covar_module(self.train_x, self.train_x)
        noise = F.softplus(self.raw_noise) + 1e-4
        return torch.linalg.cholesky(K + noise * torch.eye(len(K), dtype=K.dtype))

    def marginal_log_likelihood(self):
        L = self.train_cholesky()
        residual = (self.train_y - self.mean_constant).unsqueeze(-1)
        alpha = torch.cholesky_solve(residual, L)  # COLLIDES
        fit = (residual * alpha).sum()
        return -0.5 * (fit + 2 * L.diagonal().log().sum() + len(L) * math.log(2 * math.pi)) / len(L)

    @torch.no_grad()
    def predict(self, x):
        L = self.train_cholesky()
        alpha = torch.cholesky_solve((self.train_y - self.mean_constant).unsqueeze(-1), L)
        return self.mean_constant + (self.covar_module(x, self.train_x) @ alpha).squeeze(-1)


def load_frame(n=48, seed=0):
    rng = np.random.default_rng(seed)
    df = pd.DataFrame(rng.uniform(-2, 2, (n, 2)), columns=["temp", "flow"])
    df["yield"] = np.sin(df["temp"]) + 0.3 * df["flow"] ** 2 + rng.normal(0, 0.05, n)
    return df


if __name__ == "__main__":
    torch.manual_seed(0)
    df = load_frame()
    train_X = torch.tensor(df[["temp", "flow"]].values, dtype=torch.float32)
    train_y = torch.tensor(df["yield"].values)  # BORN
    model = ExactGPModel(train_X, train_y)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    for _ in range(30):
        optimizer.zero_grad()
        loss = -model.marginal_log_likelihood()
        loss.backward()
        optimizer.step()
    rmse = (model.predict(train_X) - train_y).pow(2).mean().sqrt()
    print("nll", f"{loss.item():.3f}", "rmse", f"{rmse.item():.3f}")
