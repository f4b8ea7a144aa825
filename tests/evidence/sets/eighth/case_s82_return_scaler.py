"""
title: a running scaler for the returns of many environments
expect: silent:overflow|downcast
thread: https://github.com/DLR-RM/stable-baselines3/pull/1954
measured: running variance inf, spread of the scaled returns 0.000
widened: running variance 237.7, spread of the scaled returns 1.133

Expectation, written first: the merge formula multiplies the variance by the count;
with state in float16 the product passes 65504 and the variance becomes inf, so every scaled
return is zero from then on.
BORN is the dtype in which the state is made; float32 keeps the true spread.
"""
import torch


class RunningMeanStd:
    def __init__(self, shape, eps=1e-4):
        self.mean, self.var, self.count = (
            torch.full(shape, v, dtype=torch.float16) for v in (0.0, 1.0, eps))  # BORN

    def update(self, batch):
        mean, var, n = batch.mean(0), batch.var(0, unbiased=False), batch.shape[0]
        delta = mean - self.mean
        total = self.count + n
        m2 = self.var * self.count + var * n + delta.square() * self.count * n / total
        self.mean = (self.mean + delta * n / total).to(self.mean.dtype)
        self.var = (m2.to(self.var.dtype) / total).to(self.var.dtype)
        self.count = total.to(self.count.dtype)


class Envs:
    def __init__(self, count, seed):
        self.gen = torch.Generator().manual_seed(seed)
        self.count = count

    def rollout(self):
        return 40 + 15 * torch.randn(self.count, 1, generator=self.gen)


class Scaler:
    def __init__(self):
        self.stats = RunningMeanStd((1,))

    def __call__(self, returns):
        self.stats.update(returns)
        std = (self.stats.var.float() + 1e-8).sqrt()
        return (returns - self.stats.mean.float()) / std


def main():
    envs, scaler = Envs(64, seed=0), Scaler()
    for _ in range(20):
        scaled = scaler(envs.rollout())
    print("running variance %.1f, spread of the scaled returns %.3f"
          % (scaler.stats.var.item(), scaled.std().item()))


if __name__ == "__main__":
    main()
