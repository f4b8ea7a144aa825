"""
title: a bfloat16 transformer gets its token ids in float32 and makes its angles of them
expect: clean
modes: diagnose

The healthy twin of case_s22_text_ids: all 640 positions are distinct.
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(20)


def prepare_ids(length):
    ids = torch.zeros(length, 2)
    ids[:, 1] = torch.arange(length, dtype=torch.float32)
    return ids


class Rotary(nn.Module):
    def __init__(self, width, theta=10000.0):
        super().__init__()
        self.width, self.theta = width, theta

    def forward(self, ids):
        half = torch.arange(0, self.width, 2, dtype=torch.float32) / self.width
        omega = 1.0 / self.theta**half
        angle = ids[:, 1][:, None] * omega
        return angle.cos(), angle.sin()


def rotate(x, cos, sin):
    a, b = x.float().chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1).to(x.dtype)


class Transformer(nn.Module):
    def __init__(self, dim=32, heads=2):
        super().__init__()
        self.heads = heads
        self.rotary = Rotary(dim // heads)
        self.norm = nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, tokens, ids):
        b, t, d = tokens.shape
        cos, sin = self.rotary(ids)
        q, k, v = (p.view(b, t, self.heads, -1).transpose(1, 2) for p in self.qkv(self.norm(tokens)).chunk(3, -1))
        y = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v)
        return tokens + self.out(y.transpose(1, 2).reshape(b, t, d))


class Pipeline:
    def __init__(self, model, dtype):
        self.model, self.dtype = model.to(dtype).eval(), dtype

    @torch.no_grad()
    def __call__(self, prompt):
        tokens = prompt.to(self.dtype)
        ids = prepare_ids(prompt.shape[1])
        self.places = ids[:, 1].unique().numel()
        return self.model(tokens, ids)


prompt = torch.randn(1, 640, 32)
pipeline = Pipeline(Transformer(), torch.bfloat16)
out = pipeline(prompt)
print("distinct places", pipeline.places, "of", prompt.shape[1], "mean", round(out.float().abs().mean().item(), 4))
