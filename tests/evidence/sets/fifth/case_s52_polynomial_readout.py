"""
title: a readout is fitted by normal equations in float32, to features that need float64
expect: silent:precision-loss|downcast
fix_at: 50

After https://github.com/GPflow/GPflow/issues/189 and https://github.com/cellarium-ai/cellarium-ml/issues/113 (of the kind).
Right: the features stay float64 until the fit is done.
"""
import numpy as np
import torch

torch.manual_seed(219)


class Basis:
    """Powers of a calendar year: a trend and its curvature."""

    def __init__(self, degree, dtype):
        self.degree, self.dtype = degree, dtype

    def __call__(self, years):
        years = torch.from_numpy(years)
        powers = [((years - 1950) / 10) ** k for k in range(self.degree + 1)]
        return torch.stack(powers, dim=1).to(self.dtype)  # BORN


class Readout:
    def __init__(self, ridge=0.0):
        self.ridge = ridge

    def fit(self, features, target):
        gram = features.t() @ features
        gram = gram + self.ridge * torch.eye(len(gram), dtype=gram.dtype)
        self.weight = torch.linalg.solve(gram, features.t() @ target.to(features.dtype))
        return self

    def __call__(self, features):
        return features @ self.weight


def series(seed=0):
    make = np.random.default_rng(seed)
    years = np.linspace(1950, 2020, 281)
    u = (years - 1985) / 35
    clean = 0.4 + 0.9 * u - 0.7 * u ** 2 + 1.1 * u ** 5
    return years, clean, clean + 0.02 * make.normal(size=years.shape)


years, clean, noisy = series()
basis = Basis(degree=7, dtype=torch.float32)
readout = Readout().fit(basis(years), torch.from_numpy(noisy))
fitted = readout(basis(years)).double()
print("deviation from the trend", round((fitted - torch.from_numpy(clean)).pow(2).mean().sqrt().item(), 4))
