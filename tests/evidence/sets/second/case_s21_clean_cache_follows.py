"""
title: the decoder's key/value cache is allocated in the dtype of the decoder's weights
expect: clean

The healthy twin of case_s21_ring_cache.
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(1)


class Cache:
    def __init__(self, layers, batch, heads, length, width, dtype):
        shape = (layers, batch, heads, length, width)
        self.keys = torch.zeros(shape, dtype=dtype)
        self.values = torch.zeros(shape, dtype=dtype)

    def update(self, layer, position, k, v):
        self.keys[layer].index_copy_(2, position, k)
        self.values[layer].index_copy_(2, position, v)
        return self.keys[layer], self.values[layer]


class Attention(nn.Module):
    def __init__(self, dim, heads, index):
        super().__init__()
        self.heads, self.index = heads, index
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.out = nn.Linear(dim, dim, bias=False)

    def forward(self, x, position, cache, visible):
        b, t, d = x.shape
        q, k, v = (p.view(b, t, self.heads, -1).transpose(1, 2) for p in self.qkv(x).chunk(3, dim=-1))
        k, v = cache.update(self.index, position, k, v)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=visible[position])
        return self.out(y.transpose(1, 2).reshape(b, t, d))


class Decoder(nn.Module):
    def __init__(self, vocab=64, dim=32, heads=4, layers=2):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(Attention(dim, heads, i) for i in range(layers))
        self.norm = nn.LayerNorm(dim)

    def forward(self, ids, position, cache, visible):
        x = self.embed(ids)
        for layer in self.layers:
            x = x + layer(x, position, cache, visible)
        return self.norm(x) @ self.embed.weight.t()


@torch.inference_mode()
def generate(model, prompt, new, limit=16):
    cache = Cache(len(model.layers), prompt.shape[0], 4, limit, 8, model.embed.weight.dtype)
    visible = torch.ones(limit, limit, dtype=torch.bool).tril()
    position = torch.arange(prompt.shape[1])
    ids, out = prompt, [prompt]
    for _ in range(new):
        ids = model(ids, position, cache, visible)[:, -1:].argmax(-1)
        position = position[-1:] + 1
        out.append(ids)
    return torch.cat(out, dim=1)


model = Decoder().to(torch.bfloat16).eval()
print(generate(model, torch.randint(0, 64, (2, 5)), new=6))
