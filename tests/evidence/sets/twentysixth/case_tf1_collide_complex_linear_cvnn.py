"""
title: The complex layer multiplies a complex input with its real weight matrices
expect: collision
thread: https://github.com/ericyeats/cvnn-security/issues/1
fix_at: (none beside the marked)

Expectation, written first: ComplexLinear expects real and imaginary part as two real tensors. to_complex builds a complex64
image and the user's split keeps the complex tensor as the real part; xR.mm(wR.t()) gets ComplexFloat and Float and raises.
"""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


def to_complex(x):
    phase = math.pi * (x - 0.5)
    return torch.polar(torch.ones_like(phase), phase)  # BORN


def split_parts(z):
    return z, torch.imag(z)  # BORN


class ComplexLinear(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        std = (2 * in_features) ** -0.5
        self.wR = nn.Parameter(torch.randn(out_features, in_features) * std)
        self.wI = nn.Parameter(torch.randn(out_features, in_features) * std)
        self.bR = nn.Parameter(torch.zeros(out_features))
        self.bI = nn.Parameter(torch.zeros(out_features))

    def forward(self, xR, xI):
        zR = xR.mm(self.wR.t()) - xI.mm(self.wI.t())  # COLLIDES
        zI = xR.mm(self.wI.t()) + xI.mm(self.wR.t())
        return zR + self.bR, zI + self.bI


class ModReLU(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.b = nn.Parameter(torch.full((features,), -0.1))

    def forward(self, xR, xI):
        mag = torch.sqrt(xR.square() + xI.square() + 1e-8)
        scale = F.relu(mag + self.b) / mag
        return xR * scale, xI * scale


class CVNN(nn.Module):
    def __init__(self, in_features, hidden, num_classes):
        super().__init__()
        self.fc1 = ComplexLinear(in_features, hidden)
        self.act = ModReLU(hidden)
        self.fc2 = ComplexLinear(hidden, num_classes)

    def forward(self, x):
        z = to_complex(x.flatten(1))
        xR, xI = split_parts(z)  # BORN
        xR, xI = self.act(*self.fc1(xR, xI))
        zR, zI = self.fc2(xR, xI)
        return torch.sqrt(zR.square() + zI.square() + 1e-8)


def fgsm(model, x, y, eps):
    x = x.clone().requires_grad_()
    F.cross_entropy(model(x), y).backward()
    return (x + eps * x.grad.sign()).clamp(0, 1).detach()


def make_digits(n, generator):
    y = torch.randint(0, 4, (n,), generator=generator)
    x = 0.2 * torch.rand(n, 1, 6, 6, generator=generator)
    for i, label in enumerate(y.tolist()):
        x[i, 0, label:label + 3, label:label + 2] += 0.7
    return x, y


def main():
    torch.manual_seed(1)
    x, y = make_digits(64, torch.Generator().manual_seed(1))
    model = CVNN(36, 16, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(20):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    acc = (model(x).argmax(1) == y).float().mean().item()
    adv = (model(fgsm(model, x, y, 0.1)).argmax(1) == y).float().mean().item()
    print("loss", round(loss.item(), 3), "clean", round(acc, 2), "fgsm", round(adv, 2))


if __name__ == "__main__":
    main()
