"""
title: a small GPT under bfloat16 autocast, float32 weights and average, saved and resumed in full precision
expect: clean

The recipe of nanoGPT (https://github.com/karpathy/nanoGPT) with an average as in https://github.com/d8ahazard/sd_dreambooth_extension/pull/1417.
"""
import copy
import io

import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(40)


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (z.view(b, t, self.heads, -1).transpose(1, 2) for z in self.qkv(self.n1(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.n2(x))


class GPT(nn.Module):
    def __init__(self, vocab=32, dim=32, length=16):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, dim), nn.Embedding(length, dim)
        self.blocks = nn.Sequential(Block(dim, 4), Block(dim, 4))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, vocab, bias=False)

    def forward(self, ids):
        x = self.tok(ids) + self.pos(torch.arange(ids.shape[1]))
        return self.head(self.norm(self.blocks(x)))


@torch.no_grad()
def update(average, model, decay=0.99):
    for a, p in zip(average.parameters(), model.parameters()):
        a.lerp_(p, 1 - decay)


def fresh():
    model = GPT()
    return model, copy.deepcopy(model).requires_grad_(False), torch.optim.AdamW(model.parameters(), lr=3e-3)


def train(model, average, optimizer, steps):
    for step in range(steps):
        ids = (torch.randint(0, 32, (16, 1)) + torch.arange(16)) % 32
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(ids)
        loss = F.cross_entropy(logits[:, :-1].float().flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        update(average, model)
    return loss.item()


model, average, optimizer = fresh()
train(model, average, optimizer, 12)
file = io.BytesIO()
torch.save({"model": model.state_dict(), "average": average.state_dict(), "optimizer": optimizer.state_dict()}, file)
file.seek(0)
stored = torch.load(file)
model, average, optimizer = fresh()
for part, name in ((model, "model"), (average, "average"), (optimizer, "optimizer")):
    part.load_state_dict(stored[name])
print("loss", round(train(model, average, optimizer, 12), 3))
