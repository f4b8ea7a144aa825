"""
title: the ALiBi bias is built in float32 and handed to baddbmm beside bfloat16 queries
expect: collision
fix_at: 19, 22, 50

After https://github.com/mosaicml/llm-foundry/issues/333 and https://github.com/kyleliang919/Long-context-transformers/issues/2.
Right: build the bias in the dtype of the hidden states.
"""
import math

import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(12)


def build_alibi(mask, heads):
    slopes = torch.tensor([2 ** (-8 * (h + 1) / heads) for h in range(heads)])
    position = (mask.cumsum(-1) - 1) * mask
    alibi = slopes[None, :, None] * position[:, None, :]  # BORN
    return alibi.reshape(-1, 1, mask.shape[1])


class BloomAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.head_dim = heads, dim // heads
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x, alibi, causal):
        b, t, d = x.shape
        q, k, v = (z.view(b, t, self.heads, -1).transpose(1, 2).reshape(b * self.heads, t, -1) for z in self.qkv(x).chunk(3, -1))
        scores = alibi.baddbmm(q, k.transpose(1, 2), beta=1.0, alpha=1 / math.sqrt(self.head_dim))  # COLLIDES
        scores = scores.masked_fill(~causal, torch.finfo(scores.dtype).min)
        y = scores.float().softmax(-1).to(x.dtype) @ v
        return self.out(y.view(b, self.heads, t, -1).transpose(1, 2).reshape(b, t, d))


class Bloom(nn.Module):
    def __init__(self, vocab=80, dim=32, heads=4, layers=2):
        super().__init__()
        self.heads = heads
        self.embed = nn.Embedding(vocab, dim)
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(layers))
        self.blocks = nn.ModuleList(BloomAttention(dim, heads) for _ in range(layers))

    def forward(self, ids, mask):
        x = self.embed(ids)
        alibi = build_alibi(mask, self.heads)
        causal = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).tril()
        for norm, block in zip(self.norms, self.blocks):
            x = x + block(norm(x), alibi, causal)
        return x @ self.embed.weight.t()


model = Bloom().to(torch.bfloat16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(3):
    ids = torch.randint(0, 80, (2, 10))
    mask = torch.ones_like(ids)
    mask[1, :3] = 0
    logits = model(ids, mask).float()
    loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, round(loss.item(), 3))
