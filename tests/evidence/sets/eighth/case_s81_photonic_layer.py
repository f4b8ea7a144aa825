"""
title: a photonic quantum layer fed with a moons data set in float64
expect: collision
thread: https://github.com/merlinquantum/merlin/issues/26
fix_at: 46

Expectation, written first: torch.tensor of a float64 numpy array stays float64, so
the phase encoder gives a complex128 unitary while the trainable interferometer is complex64:
the matrix product of the two refuses.
BORN is the line that takes the numpy data over without a dtype; float32 there mends it.
"""
import numpy as np
import torch
from torch import nn


def make_moons(n, rng):
    t = rng.uniform(0, np.pi, n)
    upper = np.stack([np.cos(t), np.sin(t)], 1)
    lower = np.stack([1 - np.cos(t), 0.5 - np.sin(t)], 1)
    pts = np.concatenate([upper[: n // 2], lower[n // 2:]])
    return pts, np.concatenate([np.zeros(n // 2), np.ones(n - n // 2)])


def load(n=40):
    points, labels = make_moons(n, np.random.default_rng(0))
    points = (points - points.min(0)) / (points.max(0) - points.min(0))
    x = torch.tensor(points)  # BORN
    y = torch.tensor(labels, dtype=torch.float32)
    return x, y


class QuantumLayer(nn.Module):
    def __init__(self, modes=4):
        super().__init__()
        self.modes = modes
        self.raw = nn.Parameter(0.3 * torch.randn(modes, modes))
        self.spread = nn.Parameter(torch.tensor(1.0))

    def interferometer(self):
        skew = self.raw - self.raw.t()
        return torch.matrix_exp(skew.to(torch.complex64))

    def encoder(self, x):
        phases = torch.cat([x, x.flip(1)], dim=1)
        return torch.diag_embed(torch.exp(1j * torch.pi * phases))

    def forward(self, x):
        u = self.interferometer()
        full = torch.matmul(torch.matmul(u, self.encoder(x)), u.t())  # COLLIDES
        amplitudes = full[:, :, 0]
        return self.spread * amplitudes.abs().square()


def main():
    torch.manual_seed(0)
    x, y = load()
    model = nn.Sequential(QuantumLayer(), nn.Linear(4, 1))
    opt = torch.optim.Adam(model.parameters(), 5e-2)
    for _ in range(30):
        loss = nn.functional.binary_cross_entropy_with_logits(model(x).squeeze(1), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print("loss %.3f" % loss.item())


if __name__ == "__main__":
    main()
