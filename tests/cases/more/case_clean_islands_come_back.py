"""
title: a projection kept in float32 and a complex rotation, both left again
expect: clean

The patterns of T5 and Llama done as they should be: into float32 where range or a missing kernel asks for it, back to
the dtype of the stream before anything is added.
"""
import torch
import torch.nn.functional as F
from torch import nn


def rotate(x, turn):
    pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * turn[: x.shape[-2]]).flatten(-2).type_as(x)


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)

    def forward(self, x, turn):
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1))
        mixed = F.scaled_dot_product_attention(rotate(q, turn), rotate(k, turn), v, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    keep_in_float32 = ("wo",)

    def __init__(self, width):
        super().__init__()
        self.wi, self.wo = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x):
        return self.wo(torch.relu(self.wi(x)).to(self.wo.weight.dtype)).to(x.dtype)


class Model(nn.Module):
    def __init__(self, vocabulary=30, width=16, heads=2, depth=2):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(nn.ModuleDict({"mix": Attention(width, heads), "feed": FeedForward(width)}) for _ in range(depth))
        self.angle = width // heads

    def forward(self, ids):
        rate = 10000.0 ** (-torch.arange(0, self.angle, 2, dtype=torch.float32) / self.angle)
        angle = torch.outer(torch.arange(ids.shape[1], dtype=torch.float32), rate)
        turn = torch.polar(torch.ones_like(angle), angle)
        x = self.tokens(ids)
        for block in self.blocks:
            x = x + block["mix"](x, turn)
            x = x + block["feed"](x)
        return x @ self.tokens.weight.t()


def lower(model, dtype):
    model.to(dtype)
    for module in model.modules():
        for name in getattr(module, "keep_in_float32", ()):
            getattr(module, name).float()
    return model


torch.manual_seed(0)
model = lower(Model(), torch.bfloat16)
with torch.inference_mode():
    logits = model(torch.randint(0, 30, (2, 6)))
print(logits.dtype, logits.float().argmax(dim=-1).tolist())
