"""
title: a training loop of plain functions with one float64 bias
expect: collision
fix_at: 27

No module anywhere: the weights are a dictionary of leaves. One bias was made of numpy's zeros; the sum with it is
silent and float64, and the next product is not.
"""
import numpy as np
import torch


def weights(generator):
    def matrix(*shape):
        return (torch.randn(shape, generator=generator) * shape[0] ** -0.5).requires_grad_()

    return {
        "w1": matrix(4, 16),
        "b1": torch.tensor(np.zeros(16), requires_grad=True),  # BORN
        "w2": matrix(16, 16),
        "b2": torch.zeros(16, requires_grad=True),
        "w3": matrix(16, 1),
    }


def predict(p, x):
    hidden = torch.relu(x @ p["w1"] + p["b1"])
    hidden = torch.relu(hidden @ p["w2"] + p["b2"])  # COLLIDES
    return (hidden @ p["w3"]).squeeze(1)


def step(p, x, y, rate):
    loss = (predict(p, x) - y).square().mean()
    gradients = torch.autograd.grad(loss, list(p.values()))
    with torch.no_grad():
        for value, gradient in zip(p.values(), gradients):
            value -= rate * gradient
    return loss.item()


generator = torch.Generator().manual_seed(0)
p = weights(generator)
for _ in range(5):
    x = torch.randn(32, 4, generator=generator)
    loss = step(p, x, x.prod(dim=1), rate=0.05)
print("loss", round(loss, 3))
