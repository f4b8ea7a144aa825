"""
title: Quantisation-aware training with int8 weights and a straight-through estimator
expect: clean
thread: https://github.com/pytorch/ao/pull/4806

Expectation, written first.  Nothing is wrong.  The weights are rounded to 255
levels per channel on purpose, clamped before the cast, and the gradient passes
straight through; the float32 master weights keep the small updates.  The
exported int8 weights reproduce the fake-quantised network exactly.
"""
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


def scale_of(weight):
    return weight.detach().abs().amax(1, keepdim=True).clamp(min=1e-8) / 127.0


def quantize(weight, scale):
    return (weight / scale).round().clamp(-127, 127).to(torch.int8)


class FakeQuant(torch.autograd.Function):
    @staticmethod
    def forward(ctx, weight, scale):
        return quantize(weight, scale).to(weight.dtype) * scale

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class QuantLinear(nn.Linear):
    def forward(self, x):
        return nn.functional.linear(x, FakeQuant.apply(self.weight, scale_of(self.weight)), self.bias)

    def export(self):
        scale = scale_of(self.weight)
        return {"q": quantize(self.weight.detach(), scale), "scale": scale, "bias": self.bias.detach()}


def int8_forward(packed, x):
    for i, layer in enumerate(packed):
        x = nn.functional.linear(x, layer["q"].float() * layer["scale"], layer["bias"])
        if i + 1 < len(packed):
            x = x.relu()
    return x


def main(steps=80):
    model = nn.Sequential(QuantLinear(12, 48), nn.ReLU(), QuantLinear(48, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    w = torch.randn(12, 4)
    for _ in range(steps):
        x = torch.randn(96, 12)
        loss = nn.functional.cross_entropy(model(x), (x @ w).argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    packed = [model[0].export(), model[2].export()]
    x = torch.randn(500, 12)
    with torch.no_grad():
        gap = (model(x) - int8_forward(packed, x)).abs().max().item()
        accuracy = (int8_forward(packed, x).argmax(1) == (x @ w).argmax(1)).float().mean().item()
    print(f"loss {loss.item():.3f}, int8 accuracy {accuracy:.3f}, export gap {gap:.2e}")


if __name__ == "__main__":
    main()
