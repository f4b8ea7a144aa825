"""
title: DeepAR writes a sampled value back into its input; the scale of the normalizer is numpy's float64
expect: collision
thread: https://github.com/sktime/pytorch-forecasting/issues/1111
fix_at: 19, 27, 41, 43, 60, 63, 65, 66, 72, 74, 81

Expectation, written first: the dataset casts what goes into the network, but the centre and scale of each series go
round it as numpy values of float64; a prediction is rescaled with them, becomes float64, and is written with an
advanced index into the float32 input. Cause: the target scale that is stacked without a dtype (or the numpy
statistics themselves).
"""
import numpy as np
import torch
from torch import nn


class GroupNormalizer:
    def fit(self, series):
        self.stats = {k: np.array([v.mean(), v.std() + 1e-6]) for k, v in series.items()}  # BORN
        return self

    def transform(self, key, values):
        centre, scale = self.stats[key]
        return (values - centre) / scale

    def parameters(self, key):
        return self.stats[key]


class SeriesDataset:
    def __init__(self, series, encoder, horizon):
        self.series, self.encoder, self.horizon = series, encoder, horizon
        self.normalizer = GroupNormalizer().fit(series)

    def batch(self):
        x, scale = [], []
        for key, values in self.series.items():
            z = self.normalizer.transform(key, values[: self.encoder + self.horizon])
            hour = np.arange(len(z)) % 24 / 24
            x.append(np.stack([z, hour], axis=1))
            scale.append(self.normalizer.parameters(key))
        x = torch.tensor(np.stack(x), dtype=torch.float32)
        return x[:, : self.encoder], x[:, self.encoder :].clone(), torch.tensor(np.stack(scale))  # BORN


class DeepAR(nn.Module):
    target_pos = [0]

    def __init__(self, width=12):
        super().__init__()
        self.rnn = nn.LSTM(2, width, batch_first=True)
        self.head = nn.Linear(width, 2)

    def sample(self, out, gen):
        mu, sigma = self.head(out).chunk(2, dim=-1)
        noise = torch.randn(mu.shape, generator=gen)
        return mu + torch.nn.functional.softplus(sigma) * noise

    def decode(self, future, state, scale, gen):
        lagged, outputs = future[:, 0, self.target_pos], []
        for idx in range(future.shape[1]):
            x = future[:, [idx]]
            x[:, 0, self.target_pos] = lagged  # COLLIDES
            out, state = self.rnn(x, state)
            value = self.sample(out[:, 0], gen) * scale[:, 1:] + scale[:, :1]
            lagged = (value.clamp(min=0) - scale[:, :1]) / scale[:, 1:]
            outputs.append(value)
        return torch.stack(outputs, 1)

    @torch.no_grad()
    def predict(self, dataset, gen):
        past, future, scale = dataset.batch()
        _, state = self.rnn(past)
        return self.decode(future, state, scale, gen)


def main():
    torch.manual_seed(0)
    rng = np.random.default_rng(5)
    series = {f"road{i}": rng.negative_binomial(9, 0.5, 96).astype(np.float32) * (i + 1) for i in range(4)}
    series = {k: v.astype(np.float64) for k, v in series.items()}  # BORN
    forecast = DeepAR().predict(SeriesDataset(series, encoder=72, horizon=12), torch.Generator().manual_seed(1))
    print(tuple(forecast.shape), bool(forecast.isfinite().all()))


main()
