"""
title: a layer kept in float32 for its range hands float32 to the next bfloat16 block
expect: collision
fix_at: 24, 25, 45

As in T5 one projection overflows in narrow dtypes and is raised again after the cast. Its input is brought to its
weight's dtype, which is right; its output is added to the stream as it is, and the next block collides.
"""
import torch
from torch import nn


class FeedForward(nn.Module):
    keep_in_float32 = ("wo",)

    def __init__(self, width):
        super().__init__()
        self.wi = nn.Linear(width, 4 * width, bias=False)
        self.wo = nn.Linear(4 * width, width, bias=False)

    def forward(self, x):
        hidden = torch.relu(self.wi(x))
        if hidden.dtype != self.wo.weight.dtype:
            hidden = hidden.to(self.wo.weight.dtype)
        return self.wo(hidden)


class Mix(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width, bias=False)

    def forward(self, x):
        q, k, v = self.qkv(x * x.shape[-1] ** -0.5).chunk(3, dim=-1)  # COLLIDES
        return (q @ k.transpose(-2, -1)).softmax(dim=-1) @ v


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.mix, self.feed = Mix(width), FeedForward(width)

    def forward(self, x):
        x = x + self.mix(x)
        return x + self.feed(x)


def lower(model, dtype):
    model.to(dtype)
    for module in model.modules():
        for name in getattr(module, "keep_in_float32", ()):
            getattr(module, name).float()  # BORN
    return model


torch.manual_seed(0)
model = lower(nn.Sequential(nn.Embedding(30, 16), *(Block(16) for _ in range(3)), nn.Linear(16, 30)), torch.bfloat16)
print(model(torch.randint(0, 30, (2, 7))).dtype)
