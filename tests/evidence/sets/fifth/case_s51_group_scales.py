"""
title: group scales of a 4-bit base are kept in the quantiser's default float16, the model it is swapped into is bfloat16
expect: collision
fix_at: 22, 44, 83

After https://github.com/dropbox/hqq/issues/7.
Right: the quantiser's compute dtype is the weight's.
"""
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(112)


@dataclass
class QuantConfig:
    bits: int = 4
    group: int = 16
    compute_dtype: torch.dtype = torch.float16


class Quantised(nn.Module):
    def __init__(self, linear, config):
        super().__init__()
        self.shape = linear.weight.shape
        w = linear.weight.detach().float().view(-1, config.group)
        low, high = w.amin(1, keepdim=True), w.amax(1, keepdim=True)
        scale = (high - low).clamp(min=1e-6) / (2 ** config.bits - 1)
        code = ((w - low) / scale).round()
        self.register_buffer("code", self.pack(code.to(torch.uint8)))
        self.register_buffer("meta", torch.stack([scale, low]).to(config.compute_dtype))  # BORN

    @staticmethod
    def pack(code):
        even, odd = code.flatten()[::2], code.flatten()[1::2]
        return even | (odd << 4)

    def dequantise(self):
        nibbles = torch.stack([self.code & 15, self.code >> 4], dim=1)
        scale, low = self.meta
        return (nibbles.view(len(scale), -1) * scale + low).view(self.shape)

    def forward(self, x):
        return F.linear(x, self.dequantise())  # COLLIDES


class LoRA(nn.Module):
    def __init__(self, base, rank=4):
        super().__init__()
        self.base = base
        out, inside = base.shape
        self.down = nn.Parameter(0.02 * torch.randn(rank, inside))
        self.up = nn.Parameter(torch.zeros(out, rank))

    def forward(self, x):
        return self.base(x) + (x.float() @ self.down.t() @ self.up.t()).to(x.dtype)


class Block(nn.Module):
    def __init__(self, dim=32, hidden=64):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.first, self.second = nn.Linear(dim, hidden, bias=False), nn.Linear(hidden, dim, bias=False)

    def forward(self, x):
        return x + self.second(F.gelu(self.first(self.norm(x))))


class Model(nn.Module):
    def __init__(self, vocab=40, dim=32, depth=2):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.blocks = nn.Sequential(*[Block(dim) for _ in range(depth)])

    def forward(self, ids):
        return self.blocks(self.embed(ids)) @ self.embed.weight.t()


def prepare(model, config=None):
    config = config or QuantConfig()
    model.requires_grad_(False)
    for block in model.blocks:
        block.first, block.second = LoRA(Quantised(block.first, config)), LoRA(Quantised(block.second, config))
    return [p for p in model.parameters() if p.requires_grad]


model = Model().to(torch.bfloat16)
optimizer = torch.optim.AdamW(prepare(model), lr=1e-2)
for step in range(3):
    ids = torch.randint(0, 40, (4, 8))
    loss = F.cross_entropy(model(ids).float().flatten(0, 1), ((ids + 1) % 40).flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, round(loss.item(), 4))
