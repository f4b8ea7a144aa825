"""
title: a test function's wrapper converts the recommender's float64 table to float32
expect: clean
thread: https://github.com/emdgroup/baybe/pull/417
measured: settings 90601 measured 300 | best x 9.45 2.45 value 0.40 mean 2.8
suspect: line 33 - innocent: a step of 0.05 in float32 moves the function values in the sixth digit, three are read

Expectation, written first: the search space comes as a float64 frame and the wrapper makes a float32 tensor of it.
The coordinates are multiples of 0.05 within 15 and the function is smooth, so values differ in the sixth digit only.
The best setting and its value, printed to two digits, are the float64 ones.
"""
import math

import numpy as np
import pandas as pd
import torch

DTypeFloatTorch = torch.float32


class Branin:
    dim = 2
    bounds = [(-5.0, 10.0), (0.0, 15.0)]

    def __call__(self, X):
        x1, x2 = X[..., 0], X[..., 1]
        a = x2 - 5.1 / (4 * math.pi ** 2) * x1 ** 2 + 5 / math.pi * x1 - 6
        return a ** 2 + 10 * (1 - 1 / (8 * math.pi)) * torch.cos(x1) + 10


def botorch_function_wrapper(test_function):
    def wrapper(x):
        x_tensor = torch.tensor(x, dtype=DTypeFloatTorch)
        result = test_function.__call__(x_tensor)
        return result.numpy()

    return wrapper


class SearchSpace:
    def __init__(self, bounds, step=0.05):
        axes = [np.arange(low, high + step / 2, step).round(2) for low, high in bounds]
        grid = np.meshgrid(*axes, indexing="ij")
        self.frame = pd.DataFrame({f"x_{i}": g.ravel() for i, g in enumerate(grid)})


class GreedyRecommender:
    def __init__(self, space, seed=0):
        self.space = space
        self.rng = np.random.default_rng(seed)

    def recommend(self, measurements, batch_size=5):
        frame = self.space.frame
        if measurements.empty:
            return frame.sample(batch_size, random_state=self.rng.integers(1000))
        best = measurements.sort_values("Target").iloc[0]
        away = (frame["x_0"] - best["x_0"]).abs() + (frame["x_1"] - best["x_1"]).abs()
        near = frame[(away < 1.5) & (away > 0)]
        return near.sample(batch_size, random_state=self.rng.integers(1000))


def simulate(space, lookup, rounds=60):
    recommender = GreedyRecommender(space)
    measurements = pd.DataFrame(columns=["x_0", "x_1", "Target"])
    for _ in range(rounds):
        batch = recommender.recommend(measurements).copy()
        batch["Target"] = lookup(batch[["x_0", "x_1"]].to_numpy())
        measurements = batch if measurements.empty else pd.concat([measurements, batch], ignore_index=True)
    return measurements


def main():
    function = Branin()
    space = SearchSpace(function.bounds)
    measurements = simulate(space, botorch_function_wrapper(function))
    best = measurements.sort_values("Target").iloc[0]
    print(f"settings {len(space.frame)} measured {len(measurements)}")
    print(f"best x {best['x_0']:.2f} {best['x_1']:.2f} value {best['Target']:.2f} mean {measurements['Target'].mean():.1f}")


if __name__ == "__main__":
    main()
