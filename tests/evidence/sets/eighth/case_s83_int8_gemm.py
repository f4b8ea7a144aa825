"""
title: an int8 linear layer with scales and int32 sums
expect: clean
thread: https://github.com/Comfy-Org/comfy-kitchen/pull/60

Expectation, written first: weights and activations are int8, which looks lossy, but
each row has its scale, products are summed in int32 and the result is scaled in float32; the
answers of the classifier are those of the float layer. Wider codes give the same classes.
"""
import torch
from torch import nn


def quantise(x, dim):
    scale = x.abs().amax(dim=dim, keepdim=True).clamp(min=1e-8) / 127
    codes = (x / scale).round().clamp(-127, 127).to(torch.int8)
    return codes, scale


class Int8Linear(nn.Module):
    def __init__(self, layer):
        super().__init__()
        codes, scale = quantise(layer.weight.detach(), 1)
        self.register_buffer("codes", codes)
        self.register_buffer("scale", scale)
        self.bias = nn.Parameter(layer.bias.detach().clone())

    def forward(self, x):
        codes, scale = quantise(x, 1)
        sums = codes.to(torch.int32) @ self.codes.to(torch.int32).t()
        return sums.float() * scale * self.scale.t() + self.bias


class Digits:
    def __init__(self, seed):
        self.gen = torch.Generator().manual_seed(seed)
        self.centres = torch.randn(5, 20, generator=self.gen) * 2

    def batch(self, n):
        y = torch.randint(0, 5, (n,), generator=self.gen)
        return self.centres[y] + torch.randn(n, 20, generator=self.gen), y


def train(model, data):
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(120):
        x, y = data.batch(64)
        loss = nn.functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()


def main():
    torch.manual_seed(0)
    data = Digits(0)
    model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 5))
    train(model, data)
    small = nn.Sequential(Int8Linear(model[0]), nn.ReLU(), Int8Linear(model[2]))
    x, y = data.batch(500)
    with torch.no_grad():
        a, b = model(x).argmax(1), small(x).argmax(1)
    print("accuracy %.2f, agreement %.2f" % ((b == y).float().mean().item(), (a == b).float().mean().item()))


if __name__ == "__main__":
    main()
