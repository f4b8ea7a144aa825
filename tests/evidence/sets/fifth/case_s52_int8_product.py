"""
title: a dynamically quantised layer multiplies int8 codes as they are, the sums wrap at 128
expect: silent:overflow|precision-loss
fix_at: 25

After https://github.com/triton-lang/triton/issues/2296 and https://github.com/pytorch/pytorch/issues/49890.
Right: the codes are widened to int32 for the product.
"""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(211)


def quantise(x, dim):
    scale = x.abs().amax(dim, keepdim=True).clamp(min=1e-8) / 127
    return (x / scale).round().to(torch.int8), scale


class Int8Linear(nn.Module):
    def __init__(self, linear):
        super().__init__()
        code, scale = quantise(linear.weight.detach(), 1)
        self.register_buffer("code", code)
        self.register_buffer("scale", scale)
        self.bias = linear.bias

    def forward(self, x):
        code, scale = quantise(x, -1)
        total = code @ self.code.t()  # BORN
        return total.float() * scale * self.scale.t() + self.bias


class Tagger(nn.Module):
    def __init__(self, words=60, dim=32, tags=6):
        super().__init__()
        self.embed = nn.Embedding(words, dim)
        self.first, self.second = nn.Linear(dim, 64), nn.Linear(64, tags)

    def forward(self, ids):
        return self.second(F.gelu(self.first(self.embed(ids))))


def fit(model, steps=150):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        ids = torch.randint(0, 60, (16, 12))
        loss = F.cross_entropy(model(ids).flatten(0, 1), (ids % 6).flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


def deploy(model):
    for name, child in list(model.named_children()):
        if isinstance(child, nn.Linear):
            setattr(model, name, Int8Linear(child))
    return model


@torch.no_grad()
def accuracy(model, ids):
    return (model(ids).argmax(-1) == ids % 6).float().mean().item()


model = fit(Tagger())
ids = torch.randint(0, 60, (32, 12))
before = accuracy(model, ids)
print("accuracy", round(before, 3), "quantised", round(accuracy(deploy(model), ids), 3))
