"""
title: a float32 temperature tensor promotes a bfloat16 attention's cache
expect: silent:promotion
modes: diagnose

After autoresearch-mlx#3 and Megatron-LM#4469's review: one float32 tensor in the stream, everything after it is float32.
Damage: the cache is twice its size (16,384 bytes instead of 8,192), the output no longer bfloat16.
Right change: the scale in x.dtype (or a plain number, or a parameter).
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Attention(nn.Module):
    def __init__(self, dim, heads, length):
        super().__init__()
        self.heads, self.past = heads, None
        self.wqkv = nn.Linear(dim, 3 * dim, bias=False)
        self.wo = nn.Linear(dim, dim, bias=False)
        self.log_scale = torch.linspace(0.5, 1.5, heads).view(1, heads, 1, 1)  # BORN

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.wqkv(x).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        k = k * self.log_scale  # BORN
        v = v * self.log_scale  # BORN
        q = q.to(k.dtype)
        if self.past is not None:
            k, v = torch.cat([self.past[0], k], 2), torch.cat([self.past[1], v], 2)
        self.past = (k, v)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, d)
        return self.wo(y.to(self.wo.weight.dtype))


class Decoder(nn.Module):
    def __init__(self, vocab=64, dim=32, depth=2):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList(Attention(dim, 4, 32) for _ in range(depth))
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(depth))
        self.head = nn.Linear(dim, vocab, bias=False)

    def forward(self, ids):
        h = self.embed(ids)
        for norm, block in zip(self.norms, self.blocks):
            h = h + block(norm(h))
        return self.head(h)


torch.manual_seed(0)
model = Decoder().to(torch.bfloat16).eval()
ids = torch.randint(0, 64, (1, 8))
with torch.no_grad():
    for _ in range(25):
        ids = model(ids)[:, -1:].argmax(-1)
size = sum(t.numel() * t.element_size() for b in model.blocks for t in b.past)
print("cache bytes", size, model.blocks[0].past[0].dtype)
