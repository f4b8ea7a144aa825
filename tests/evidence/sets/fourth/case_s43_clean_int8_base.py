"""
title: adapters over an int8 base: signed codes, group scales in float16, dequantised to bfloat16 for the product
expect: clean

The right way round of https://github.com/tile-ai/tilelang/issues/2947: symmetric codes, no zero point, adapters in float32.
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(45)


class Int8Linear(nn.Module):
    def __init__(self, linear, group=16):
        super().__init__()
        w = linear.weight.detach().view(linear.out_features, -1, group)
        scale = w.abs().amax(-1, keepdim=True) / 127
        self.register_buffer("code", (w / scale).round().clamp(-127, 127).to(torch.int8))
        self.register_buffer("scale", scale.to(torch.float16))
        self.register_buffer("bias", linear.bias.detach().to(torch.bfloat16))

    def forward(self, x):
        weight = (self.code.float() * self.scale.float()).flatten(1).to(torch.bfloat16)
        return F.linear(x.to(torch.bfloat16), weight, self.bias)


class WithAdapter(nn.Module):
    def __init__(self, linear, rank=4):
        super().__init__()
        self.base = Int8Linear(linear)
        self.down = nn.Parameter(torch.randn(rank, linear.in_features) * 0.05)
        self.up = nn.Parameter(torch.zeros(linear.out_features, rank))

    def forward(self, x):
        return self.base(x).float() + x.float() @ self.down.t() @ self.up.t()


class Tagger(nn.Module):
    def __init__(self, vocab=50, dim=32, tags=5):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.first, self.second = nn.Linear(dim, 64), nn.Linear(64, dim)
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, tags)

    def forward(self, ids):
        x = self.embed(ids)
        x = self.norm(x + self.second(F.gelu(self.first(x))))
        return self.head(x)


def adapt(model):
    model.requires_grad_(False)
    model.first, model.second = WithAdapter(model.first), WithAdapter(model.second)
    model.head.requires_grad_(True)
    return [p for p in model.parameters() if p.requires_grad]


model = Tagger()
optimizer = torch.optim.AdamW(adapt(model), lr=1e-2)
for step in range(20):
    ids = torch.randint(0, 50, (8, 12))
    loss = F.cross_entropy(model(ids).flatten(0, 1), (ids % 5).flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
right = (model(ids).argmax(-1) == ids % 5).sum()
print("loss", round(loss.item(), 3), "right", int(right), "of", ids.numel())
