"""
title: a static key/value cache allocated in the default dtype for a bfloat16 decoder
expect: collision
fix_at: 19, 23, 38, 54

After ovg-project/kvcached#214 and gpt-fast's setup_caches (default dtype of the cache): index_copy_ wants one dtype.
Right change: allocate the cache in the model's dtype.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class KVCache(nn.Module):
    def __init__(self, batch, heads, length, dim, dtype):
        super().__init__()
        shape = (batch, heads, length, dim)
        self.register_buffer("k", torch.zeros(shape, dtype=dtype), persistent=False)  # BORN
        self.register_buffer("v", torch.zeros(shape, dtype=dtype), persistent=False)

    def update(self, pos, k, v):
        self.k.index_copy_(2, pos, k)  # COLLIDES
        self.v.index_copy_(2, pos, v)
        return self.k, self.v


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.cache = heads, None
        self.norm = nn.LayerNorm(dim)
        self.wqkv = nn.Linear(dim, 3 * dim, bias=False)
        self.wo = nn.Linear(dim, dim, bias=False)

    def forward(self, x, pos):
        b, n, d = x.shape
        q, k, v = (t.view(b, n, self.heads, -1).transpose(1, 2) for t in self.wqkv(self.norm(x)).chunk(3, -1))
        k, v = self.cache.update(pos, k, v)
        mask = torch.arange(k.shape[2])[None, :] <= pos[:, None]
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return x + self.wo(y.transpose(1, 2).reshape(b, n, d))


class Decoder(nn.Module):
    def __init__(self, vocab=50, dim=16, heads=2, depth=2):
        super().__init__()
        self.dim, self.heads = dim, heads
        self.embed = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(depth))
        self.head = nn.Linear(dim, vocab, bias=False)

    def setup_caches(self, batch, length, dtype=torch.float32):  # BORN
        for block in self.blocks:
            block.cache = KVCache(batch, self.heads, length, self.dim // self.heads, dtype)

    def forward(self, ids, pos):
        h = self.embed(ids)
        for block in self.blocks:
            h = block(h, pos)
        return self.head(h)


torch.manual_seed(0)
model = Decoder().to(torch.bfloat16).eval()
model.setup_caches(1, 16)  # BORN
ids = torch.tensor([[4, 9, 2]])
with torch.no_grad():
    logits = model(ids, torch.arange(3))
    for p in range(3, 6):
        nxt = logits[:, -1:].argmax(-1)
        logits = model(nxt, torch.tensor([p]))
print("last token", logits[:, -1].argmax(-1).tolist())
