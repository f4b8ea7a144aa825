"""
title: a DoRA layer rebuilds its weight in float32 inside a bfloat16 model
expect: collision
thread: https://github.com/Nerogar/OneTrainer/issues/1479
fix_at: 16, 19, 33, 34, 36, 37

Expectation, written first: everything that the user chose is bfloat16; the helper that hands out the dense weight
gives float32 unless told otherwise, and forward does not tell it. The rebuilt weight is float32, and the product
with the bfloat16 input is refused. Cause: the helper's default, or the call in forward that relies on it.
"""
import torch
import torch.nn.functional as F
from torch import nn


def dense_weight(layer, dtype=torch.float32):  # BORN
    """the plain weight of a layer that may be stored packed"""
    weight = layer.weight.detach()
    return weight.to(dtype)  # BORN


class DoRALinear(nn.Module):
    def __init__(self, orig, rank, alpha, dtype):
        super().__init__()
        self.orig = orig.requires_grad_(False)
        self.scale = alpha / rank
        self.down = nn.Parameter(torch.randn(rank, orig.in_features, dtype=dtype) / rank)
        self.up = nn.Parameter(torch.zeros(orig.out_features, rank, dtype=dtype))
        norm = torch.linalg.vector_norm(dense_weight(orig, torch.float32), dim=1, keepdim=True)
        self.dora_scale = nn.Parameter(norm.to(dtype))

    def forward(self, x):
        weight = dense_weight(self.orig)  # BORN
        weight = weight + (self.up @ self.down) * self.scale
        norm = torch.linalg.vector_norm(weight.detach(), dim=1, keepdim=True)
        weight = self.dora_scale * (weight / norm)
        return F.linear(x, weight, self.orig.bias)  # COLLIDES


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.to_q = nn.Linear(width, width)
        self.to_out = nn.Linear(width, width)

    def forward(self, x):
        return x + self.to_out(torch.tanh(self.to_q(x)))


def hook_to(model, names, rank=4, alpha=4.0, dtype=torch.bfloat16):
    for block in model:
        for name in names:
            setattr(block, name, DoRALinear(getattr(block, name), rank, alpha, dtype))
    return [p for p in model.parameters() if p.requires_grad]


def main():
    torch.manual_seed(0)
    model = nn.Sequential(*[Block(32) for _ in range(2)]).to(torch.bfloat16)
    model.requires_grad_(False)
    optimizer = torch.optim.AdamW(hook_to(model, ["to_q", "to_out"]), lr=1e-2)
    x = torch.randn(16, 32).to(torch.bfloat16)
    target = torch.roll(x, 1, dims=-1).float()
    for step in range(5):
        loss = F.mse_loss(model(x).float(), target)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(step, round(loss.item(), 3))


main()
