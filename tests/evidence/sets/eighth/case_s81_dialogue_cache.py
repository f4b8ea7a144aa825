"""
title: a dialogue speech decoder with a preallocated key and value store
expect: collision
thread: https://github.com/nari-labs/dia/pull/45
fix_at: 40

Expectation, written first: the store for keys and values is allocated without a
dtype, that is float32, and the bf16 keys are copied into it silently; attention then gets a
bf16 query with float32 keys and values and refuses.
BORN is the factory of the store; dtype of the model mends it (the project casts at the use).
"""
import torch
from torch import nn
from torch.nn import functional as F


class KeyValueStore:
    def __init__(self, heads, max_len, dim):
        self.data = torch.zeros(2, 1, heads, max_len, dim)  # BORN
        self.used = 0

    def append(self, k, v):
        n = k.shape[2]
        self.data[0, :, :, self.used:self.used + n] = k
        self.data[1, :, :, self.used:self.used + n] = v
        self.used += n
        return self.data[:, :, :, :self.used]


class SelfAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.dim = heads, width // heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x, store):
        b, t, w = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, self.dim).permute(2, 0, 3, 1, 4)
        keys, values = store.append(k, v)
        y = F.scaled_dot_product_attention(q, keys, values)  # COLLIDES
        return self.out(y.transpose(1, 2).reshape(b, t, w))


class SpeechDecoder(nn.Module):
    def __init__(self, codes=64, width=32, heads=4):
        super().__init__()
        self.embed = nn.Embedding(codes, width)
        self.attn = SelfAttention(width, heads)
        self.head = nn.Linear(width, codes)
        self.heads, self.dim = heads, width // heads

    @torch.no_grad()
    def generate(self, start, steps):
        store = KeyValueStore(self.heads, steps + 1, self.dim)
        code, codes = torch.tensor([[start]]), []
        for _ in range(steps):
            h = self.embed(code)
            h = h + self.attn(h, store)
            code = self.head(h[:, -1:]).argmax(-1)
            codes.append(int(code))
        return codes


def main():
    torch.manual_seed(9)
    model = SpeechDecoder().to(torch.bfloat16).eval()
    print("codes", model.generate(start=3, steps=8))


if __name__ == "__main__":
    main()
