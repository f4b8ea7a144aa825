"""
title: the replay buffer of a dynamics model is single precision, and the normalizer uses the raw moments
expect: silent:precision-loss|downcast
thread: https://github.com/facebookresearch/mbrl-lib/pull/111
measured: spread of the normalized columns 1.00, 1.00, 249257.12; mean reward 1.02
widened: spread of the normalized columns 1.00, 1.00, 1.00; mean reward 1.02

Expectation, written first: an encoder reading of about fifty thousand varies by a tenth; the difference of the mean
square and the squared mean is rounded away in float32 and the scale of that column is noise. The rewards are kept in
bfloat16 but are whole numbers.
"""
import torch


class ReplayBuffer:
    def __init__(self, capacity, width):
        self.data = torch.zeros(capacity, width, dtype=torch.float32)  # BORN
        self.reward = torch.zeros(capacity)
        self.size = 0

    def add(self, rows, reward):
        stop = self.size + len(rows)
        self.data[self.size : stop] = rows
        self.reward[self.size : stop] = reward.to(torch.bfloat16)
        self.size = stop

    def all(self):
        return self.data[: self.size], self.reward[: self.size]


class Normalizer:
    def __init__(self, eps=1e-12):
        self.eps = eps

    def fit(self, x):
        self.mean = x.mean(0)
        variance = x.square().mean(0) - self.mean.square()  # BORN
        self.std = variance.clamp(min=self.eps).sqrt()
        return self

    def __call__(self, x):
        return (x - self.mean) / self.std


def robot(n, gen):
    angle = torch.randn(n, dtype=torch.float64, generator=gen)
    velocity = 0.5 * torch.randn(n, dtype=torch.float64, generator=gen)
    encoder = 50_000 + 0.25 * torch.randn(n, dtype=torch.float64, generator=gen)
    reward = (angle.abs() < 0.5).double() + 2 * (velocity.abs() < 0.2).double()
    return torch.stack([angle, velocity, encoder], 1), reward


def main():
    gen = torch.Generator().manual_seed(9)
    buffer = ReplayBuffer(4000, 3)
    for _ in range(8):
        buffer.add(*robot(500, gen))
    x, reward = buffer.all()
    scaled = Normalizer().fit(x)(x).double()
    spread = ", ".join(f"{s:.2f}" for s in scaled.std(0).tolist())
    print(f"spread of the normalized columns {spread}; mean reward {reward.mean().item():.2f}")


main()
