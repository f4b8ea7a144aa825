"""
title: weight-only quantised linears answer in float32 and the bfloat16 KV cache refuses the keys
expect: collision
thread: https://github.com/pytorch/torchchat/issues/596
fix_at: 59, 60

Expectation, written first: the model and its KV cache are built in bfloat16. The quantisation handler replaces the
linears by a class whose precision defaults to float32; its forward computes in that precision and does not go back
to the input's dtype, so wk and wv return float32. The cache writes by index, which wants one dtype.
"""
import json
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class BuilderArgs:
    precision: torch.dtype = torch.bfloat16
    quantize: str = '{"linear:int8": {"groupsize": 0}}'
    dim: int = 32
    n_heads: int = 4


class WeightOnlyInt8Linear(nn.Module):
    def __init__(self, weight, precision=torch.float32):  # BORN
        super().__init__()
        self.precision = precision
        scales = weight.float().abs().amax(1, keepdim=True) / 127
        self.register_buffer("weight", (weight.float() / scales).round().to(torch.int8))
        self.register_buffer("scales", scales)

    def forward(self, input):
        w = self.weight.to(self.precision) * self.scales.to(self.precision)
        return F.linear(input.to(self.precision), w)  # BORN


class Int8Handler:
    def __init__(self, model, groupsize):
        self.model, self.groupsize = model, groupsize

    def quantized_model(self):
        for module in list(self.model.modules()):
            for name, child in list(module.named_children()):
                if isinstance(child, nn.Linear) and name != "output":
                    setattr(module, name, WeightOnlyInt8Linear(child.weight.data))  # BORN
        return self.model


class KVCache(nn.Module):
    def __init__(self, b, n_heads, max_seq_length, head_dim, dtype):
        super().__init__()
        for name in ("k_cache", "v_cache"):
            self.register_buffer(name, torch.zeros(b, n_heads, max_seq_length, head_dim, dtype=dtype))

    def update(self, input_pos, k_val, v_val):
        self.k_cache[:, :, input_pos] = k_val  # COLLIDES
        self.v_cache[:, :, input_pos] = v_val
        return self.k_cache, self.v_cache


class Transformer(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.a, d = a, a.dim
        self.tok_embeddings, self.output = nn.Embedding(50, d), nn.Linear(d, 50, bias=False)
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(d, d, bias=False) for _ in range(4))

    def setup_caches(self, b, dtype):
        self.kv_cache = KVCache(b, self.a.n_heads, 12, self.a.dim // self.a.n_heads, dtype)

    def forward(self, idx, input_pos):
        x = self.tok_embeddings(idx)
        q, k, v = (w(x).unflatten(-1, (self.a.n_heads, -1)).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        k, v = self.kv_cache.update(input_pos, k, v)
        mask = torch.arange(k.shape[2])[None] <= input_pos[:, None]
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.output(x + self.wo(y.transpose(1, 2).flatten(2)))


if __name__ == "__main__":
    torch.manual_seed(0)
    model = Transformer(args := BuilderArgs()).to(args.precision).eval()
    for name, kwargs in json.loads(args.quantize).items():
        model = Int8Handler(model, **kwargs).quantized_model()
    model.setup_caches(1, args.precision)
    with torch.no_grad():
        print(model(torch.randint(0, 50, (1, 5)), torch.arange(5))[:, -1].argmax(-1))
