"""
title: diagonal covariances of a mixture model are the mean square minus the squared mean, in the input's dtype
expect: silent:precision-loss|downcast
thread: https://github.com/scikit-learn/scikit-learn/issues/30382
measured: spreads 8.49 and 8.64, regimes recognised 56.9%
widened: spreads 0.60 and 4.06, regimes recognised 98.2%

Expectation, written first: features near ten thousand have squares whose float32 step exceeds the true variance, so
the variances are noise or negative and are cut to the floor; the narrow cluster cannot be told from the wide one.
Cluster labels in int8 and the responsibilities' start of zeros and ones in float16 are exact.
"""
import math

import numpy as np
import torch


class Sensor:
    """pressure logs in hPa times ten: two regimes with the same mean and different spread"""

    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        self.label = (rng.random(n) < 0.4).astype(np.int8)
        spread = np.where(self.label[:, None] == 1, 4.0, 0.6)
        self.x = np.array([10132.0, 9980.0, 10051.0]) + spread * rng.normal(size=(n, 3))

    def frame(self, dtype=np.float32):  # BORN
        return torch.from_numpy(self.x.astype(dtype))  # BORN


class DiagonalMixture:
    def __init__(self, k, floor=1e-2):
        self.k, self.floor = k, floor

    def start(self, x):
        far = (x - x.mean(0)).abs().sum(-1)
        hard = torch.zeros(len(x), self.k, dtype=torch.float16)
        hard[torch.arange(len(x)), (far > far.median()).long()] = 1
        return hard.to(x.dtype)

    def m_step(self, x, resp):
        weight = resp.sum(0)
        self.mean = resp.T @ x / weight[:, None]
        square = resp.T @ (x * x) / weight[:, None]  # BORN
        self.var = (square - self.mean ** 2).clamp(min=self.floor)
        self.share = weight / weight.sum()

    def e_step(self, x):
        dist = (x[:, None] - self.mean) ** 2 / self.var
        log = -0.5 * (dist + self.var.log() + math.log(2 * math.pi)).sum(-1) + self.share.log()
        return torch.softmax(log, dim=-1)

    def fit(self, x, rounds=40):
        resp = self.start(x)
        for _ in range(rounds):
            self.m_step(x, resp)
            resp = self.e_step(x)
        return resp


def agreement(resp, label):
    guess = resp.argmax(-1).numpy().astype(np.int8)
    same = (guess == label).mean()
    return max(same, 1 - same)


def main():
    sensor = Sensor(4000, seed=10)
    model = DiagonalMixture(2)
    resp = model.fit(sensor.frame())
    spread = sorted(model.var.mean(-1).sqrt().tolist())
    print(f"spreads {spread[0]:.2f} and {spread[1]:.2f}, regimes recognised {100 * agreement(resp, sensor.label):.1f}%")


main()
