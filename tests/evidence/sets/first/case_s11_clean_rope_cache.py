"""
title: bfloat16 decoding with a static cache, rotary embedding in float32 and cast back
expect: clean

The healthy twin of rope_into_cache: the table is float32 (positions must be), the rotation is done in float32 and ends in type_as,
the cache has the model's dtype, the logits are widened for sampling.
"""
import torch
import torch.nn.functional as F
from torch import nn


def rope_table(length, dim, base=10000.0):
    angle = torch.outer(torch.arange(length).float(), base ** (-torch.arange(0, dim, 2).float() / dim))
    return torch.stack([angle.cos(), angle.sin()], -1)


def rotate(x, table, positions):
    pairs = x.float().unflatten(-1, (-1, 2))
    cos, sin = table[positions].unbind(-1)
    a, b = pairs.unbind(-1)
    return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2).type_as(x)


class Attention(nn.Module):
    def __init__(self, width=16, heads=2):
        super().__init__()
        self.heads, self.k, self.v = heads, None, None
        self.norm, self.qkv, self.out = nn.RMSNorm(width), nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)

    def allocate(self, batch, length):
        shape = (batch, self.heads, length, self.out.in_features // self.heads)
        self.k, self.v = (torch.zeros(shape, dtype=self.out.weight.dtype) for _ in range(2))

    def forward(self, x, table, positions):
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, -1))
        self.k.index_copy_(2, positions, rotate(k, table, positions))
        self.v.index_copy_(2, positions, v)
        mask = torch.arange(self.k.shape[2]) <= positions[:, None]
        out = F.scaled_dot_product_attention(rotate(q, table, positions), self.k, self.v, attn_mask=mask)
        return x + self.out(out.transpose(1, 2).flatten(-2))


class LM(nn.Module):
    def __init__(self, vocab=40, width=16, depth=2):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.layers = nn.ModuleList(Attention(width) for _ in range(depth))
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, vocab, bias=False)
        self.table = rope_table(64, width // 2)

    def forward(self, ids, positions):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x, self.table, positions)
        return self.head(self.norm(x))


torch.manual_seed(0)
model = LM().to(torch.bfloat16).eval()
for layer in model.layers:
    layer.allocate(1, 32)
ids = torch.tensor([[3, 7, 11]])
with torch.inference_mode():
    logits = model(ids, torch.arange(3))
    for position in range(3, 10):
        token = (logits[:, -1].float() / 0.8).softmax(-1).multinomial(1)
        ids = torch.cat([ids, token], 1)
        logits = model(token, torch.tensor([position]))
print(tuple(ids.shape))
