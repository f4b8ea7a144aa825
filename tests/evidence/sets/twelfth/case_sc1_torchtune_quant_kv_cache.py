"""
title: generation with int8 weights: float32 scales widen the keys on their way into a bfloat16 cache
expect: collision
thread: https://github.com/meta-pytorch/torchtune/issues/1349
fix_at: 38, 41, 48

Expectation, written first: the quantizer stores its scales in float32, each quantized linear layer therefore answers
in float32; the cache was set up with the recipe's bfloat16 and its indexed write refuses.
"""
from argparse import Namespace

import torch
import torch.nn.functional as F
from torch import nn


CONFIG = Namespace(dtype="bf16", max_new_tokens=4, max_seq_len=16, dim=32, heads=4, layers=2, vocab=64)
DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


class KVCache(nn.Module):
    def __init__(self, heads, length, head_dim, dtype):
        super().__init__()
        self.register_buffer("k_cache", torch.zeros(1, heads, length, head_dim, dtype=dtype), persistent=False)
        self.register_buffer("v_cache", torch.zeros(1, heads, length, head_dim, dtype=dtype), persistent=False)

    def update(self, input_pos, k, v):
        self.k_cache[:, :, input_pos] = k  # COLLIDES
        self.v_cache[:, :, input_pos] = v
        return self.k_cache, self.v_cache


class WeightOnlyInt8Linear(nn.Module):
    def __init__(self, linear):
        super().__init__()
        weight, scales = quantize_per_channel(linear.weight)
        self.register_buffer("weight", weight)
        self.register_buffer("scales", scales)

    def forward(self, x):
        return F.linear(x, self.weight.to(x.dtype)) * self.scales


def quantize_per_channel(weight):
    w = weight.detach().to(torch.float32)
    scales = w.abs().amax(dim=1).clamp(min=1e-6) / 127
    q = torch.round(w / scales[:, None]).clamp(-127, 127).to(torch.int8)
    return q, scales.to(torch.float32)  # BORN


def quantize(module):
    for name, child in list(module.named_children()):
        if isinstance(child, nn.Linear):
            setattr(module, name, WeightOnlyInt8Linear(child))
        else:
            quantize(child)
    return module


class Layer(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.heads = cfg.heads
        self.norm, self.mlp = nn.RMSNorm(cfg.dim), nn.Linear(cfg.dim, cfg.dim, bias=False)
        self.q, self.k, self.v, self.o = (nn.Linear(cfg.dim, cfg.dim, bias=False) for _ in range(4))
        self.kv_cache = None

    def forward(self, x, input_pos, mask):
        h = self.norm(x)
        q, k, v = (f(h).unflatten(-1, (self.heads, -1)).transpose(1, 2) for f in (self.q, self.k, self.v))
        k, v = self.kv_cache.update(input_pos, k, v)
        h = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.o(h.transpose(1, 2).flatten(2))
        return x + F.silu(self.mlp(x))


class Decoder(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.tok, self.layers = nn.Embedding(cfg.vocab, cfg.dim), nn.ModuleList(Layer(cfg) for _ in range(cfg.layers))
        self.out = nn.Linear(cfg.dim, cfg.vocab, bias=False)
        self.register_buffer("mask", torch.ones(cfg.max_seq_len, cfg.max_seq_len, dtype=torch.bool).tril())

    def setup_caches(self, cfg, dtype):
        for layer in self.layers:
            layer.kv_cache = KVCache(cfg.heads, cfg.max_seq_len, cfg.dim // cfg.heads, dtype)

    def forward(self, tokens, input_pos):
        x = self.tok(tokens)
        for layer in self.layers:
            x = layer(x, input_pos, self.mask[None, None, input_pos])
        return self.out(x)


class InferenceRecipe:
    def __init__(self, cfg):
        torch.manual_seed(0)
        self.cfg = cfg
        self.model = quantize(Decoder(cfg).to(DTYPES[cfg.dtype]))
        self.model.setup_caches(cfg, DTYPES[cfg.dtype])

    @torch.inference_mode()
    def generate(self, prompt):
        tokens, pos = torch.tensor([prompt]), torch.arange(len(prompt))
        for _ in range(self.cfg.max_new_tokens):
            tokens, pos = self.model(tokens, pos)[:, -1:].argmax(-1), pos[-1:] + 1
            yield tokens.item()


print(list(InferenceRecipe(CONFIG).generate([5, 9, 33, 2])))
