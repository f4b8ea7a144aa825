"""
title: samples of a demand forecast are rescaled with the encoder's float64 statistics, quantile levels are float32
expect: collision
thread: https://github.com/sktime/pytorch-forecasting/issues/1110
fix_at: 47

Expectation, written first: centre and scale of each series come from numpy as float64 and
have dimensions, so the rescaled samples are float64; quantile wants levels of that dtype.
"""
import numpy as np
import torch
from torch import nn


class GroupNormalizer:
    def fit(self, series):
        self.center = {k: v.mean() for k, v in series.items()}
        self.scale = {k: v.std() + 1e-8 for k, v in series.items()}
        return self

    def params(self, keys):
        stats = np.array([[self.center[k], self.scale[k]] for k in keys])  # BORN
        return torch.from_numpy(stats)  # BORN

    def transform(self, key, values):
        return (values - self.center[key]) / self.scale[key]


class DeepAR(nn.Module):
    def __init__(self, hidden=12):
        super().__init__()
        self.rnn = nn.GRU(1, hidden, batch_first=True)
        self.proj = nn.Linear(hidden, 2)

    def forward(self, x):
        return self.proj(self.rnn(x)[0][:, -1])


class NormalLoss:
    def __init__(self, quantiles):
        self.quantiles = quantiles

    def sample(self, params, target_scale, n):
        loc, raw = params.unbind(-1)
        noise = torch.randn(n, len(loc))
        z = loc + nn.functional.softplus(raw) * noise
        return z * target_scale[:, 1] + target_scale[:, 0]

    def to_quantiles(self, params, target_scale, n=200):
        samples = self.sample(params, target_scale, n).sort(0).values
        return torch.quantile(samples, torch.tensor(self.quantiles), dim=0)  # COLLIDES


@torch.no_grad()
def main():
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    series = {f"sku{i}": rng.negative_binomial(9, 0.5, size=60) for i in range(4)}
    norm = GroupNormalizer().fit(series)
    x = np.stack([norm.transform(k, v) for k, v in series.items()]).astype(np.float32)
    params = DeepAR()(torch.from_numpy(x).unsqueeze(-1))
    levels = NormalLoss([0.1, 0.5, 0.9]).to_quantiles(params, norm.params(series))
    print("median", levels[1].tolist())


main()
