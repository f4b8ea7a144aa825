"""
title: weight-only int8 layers keep float32 scales, so the dequantised weight is float32 in a bfloat16 model
expect: collision
fix_at: 25

After yuhuixu1993/qa-lora#10 and pytorch/executorch#1791 ("scales must be of the same dtype as the input").
Right: store the scale in the activation's dtype, or cast the dequantised weight.
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(11)


class Int8Linear(nn.Module):
    """Symmetric, one scale for each output row."""

    def __init__(self, linear):
        super().__init__()
        weight = linear.weight.detach().float()
        amax = weight.abs().amax(dim=1, keepdim=True).clamp(min=1e-8)
        scale = amax / 127  # BORN
        self.register_buffer("weight_q", (weight / scale).round().clamp(-127, 127).to(torch.int8))
        self.register_buffer("scale", scale)
        self.bias = linear.bias

    def forward(self, x):
        weight = self.weight_q.to(x.dtype) * self.scale
        return F.linear(x, weight, self.bias)  # COLLIDES


def quantise(module, skip=("head",)):
    for name, child in module.named_children():
        if isinstance(child, nn.Linear) and name not in skip:
            setattr(module, name, Int8Linear(child))
        else:
            quantise(child, skip)
    return module


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, 2 * dim)
        self.down = nn.Linear(2 * dim, dim)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self, vocab=48, dim=24, depth=2):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList(Block(dim) for _ in range(depth))
        self.head = nn.Linear(dim, vocab)

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def main():
    model = Model().to(torch.bfloat16).eval()
    ids = torch.randint(0, 48, (3, 10))
    with torch.no_grad():
        reference = model(ids).float()
        quantised = quantise(model)
        got = quantised(ids).float()
    error = (got - reference).norm() / reference.norm()
    size = sum(b.numel() * b.element_size() for b in quantised.buffers())
    print("relative error", round(error.item(), 4), "bytes", size)


main()
