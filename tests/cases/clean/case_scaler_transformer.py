"""
title: a transformer under float16 autocast with a loss scaler and an additive float32 mask
expect: clean

Float32 weights and a float32 mask: what autocast returns in half is widened where it meets them, and narrowed again
at the next matmul. That is how autocast works.
"""
import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, mask):
        q, k, v = (p.unflatten(-1, (self.heads, -1)).transpose(1, 2) for p in self.qkv(x).chunk(3, dim=-1))
        share = (q @ k.mT / q.shape[-1] ** 0.5 + mask).softmax(dim=-1)
        return self.out((share @ v).transpose(1, 2).flatten(2))


class Model(nn.Module):
    def __init__(self, vocabulary, width, depth):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Parameter(torch.randn(16, width) * 0.02)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))
        self.layers = nn.ModuleList(Attention(width, 2) for _ in range(depth))

    def forward(self, ids):
        length = ids.shape[1]
        mask = torch.full((length, length), float("-inf")).triu(1)
        x = self.tokens(ids) + self.places[:length]
        for norm, layer in zip(self.norms, self.layers):
            x = x + layer(norm(x), mask)
        return x @ self.tokens.weight.t()


torch.manual_seed(0)
model = Model(32, 16, 2)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
for _ in range(3):
    ids = torch.randint(0, 32, (4, 10))
    with torch.autocast("cpu", dtype=torch.float16):
        logits = model(ids)
        loss = F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), ids[:, 1:].flatten())
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
print(round(loss.item(), 1), scaler.get_scale())