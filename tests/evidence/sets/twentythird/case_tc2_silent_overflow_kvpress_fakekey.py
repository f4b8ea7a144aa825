"""
title: the fake key that hides pruned heads overflows fp16 and the decoder emits token 0 for ever
expect: silent:overflow
thread: https://github.com/NVIDIA/kvpress/issues/268
measured: generated [0, 0, 0, 0, 0, 0, 0, 0, 0, 0] | steps with nan logits 10 of 10
widened: generated [85, 69, 18, 115, 64, 112, 93, 103, 31, 118] | steps with nan logits 0 of 10
innocent: generated [0, 0, 0, 0, 0, 0, 0, 0, 0, 0] | steps with nan logits 10 of 10
suspect: line 52, the probabilities lie in 0..1 and half is plenty for them

Expectation, written first: search_hyperplane multiplies the mean query by -1e5 in the key dtype (float16) before it divides by the
squared norm, so components of the mean above 0.65 become -inf although the quotient itself would fit. The inf keys give inf - inf in
q @ k, the softmax rows are NaN and argmax falls to token 0. Computing the hyperplane in float32 and casting the quotient back cures it;
keeping the attention probabilities in float32 does not.
"""
import torch
from torch import nn
import torch.nn.functional as F


def search_hyperplane(X, max_iter=200):
    Y = X.mean(1)  # BORN
    for _ in range(max_iter):
        mask = torch.bmm(X, Y.unsqueeze(-1)) <= 0
        if not mask.any():
            return -1e5 * Y / Y.norm(dim=-1, keepdim=True) ** 2  # BORN
        Y = Y + (X * mask).sum(1) / mask.sum(1).clamp(min=1)
    raise ValueError("Could not find fake keys such that for every query q, exp(<q, k>) = 0")


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.head_dim = heads, dim // heads
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.o_proj = nn.Linear(dim, dim, bias=False)
        self.query_bias = nn.Parameter(torch.full((heads, 1, dim // heads), 1.1))
        self.masked_key_indices = None

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, self.head_dim).permute(2, 0, 3, 1, 4)
        q = q + self.query_bias
        if self.masked_key_indices is not None:
            flat = q.reshape(b * self.heads, n, self.head_dim)
            fake = search_hyperplane(flat).view(b, self.heads, self.head_dim)  # BORN
            bi, hi, si = self.masked_key_indices
            k = k.clone()
            k[bi, hi, si] = fake[bi, hi]
        scores = q @ k.transpose(-1, -2) / self.head_dim ** 0.5
        causal = torch.triu(torch.ones(n, n, dtype=torch.bool), 1)
        scores = scores.masked_fill(causal, torch.finfo(scores.dtype).min)
        probs = F.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype)
        return self.o_proj((probs.to(v.dtype) @ v).transpose(1, 2).reshape(b, n, d))


class TinyLM(nn.Module):
    def __init__(self, vocab=120, dim=32, heads=4):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.attn = Attention(dim, heads)
        self.head = nn.Linear(dim, vocab, bias=False)

    def forward(self, ids):
        x = self.embed(ids)
        return self.head(x + self.attn(x))


class AdaKVPress:
    def __init__(self, ratio):
        self.ratio = ratio

    def compress(self, attn, batch, length):
        n = int(length * self.ratio)
        heads = torch.arange(attn.heads).repeat_interleave(n)
        pos = torch.cat([torch.randperm(length - 2)[:n] + 1 for _ in range(attn.heads)])
        attn.masked_key_indices = (torch.zeros_like(heads), heads, pos)


torch.manual_seed(3)
model = TinyLM().half().eval()
prompt = torch.randint(1, 120, (1, 14))
AdaKVPress(0.4).compress(model.attn, 1, prompt.shape[1])
ids, broken = prompt, 0
with torch.no_grad():
    model.attn.qkv.weight.mul_(1.6)
    for _ in range(10):
        logits = model(ids)[:, -1].float()
        broken += int(torch.isnan(logits).any())
        ids = torch.cat([ids, logits.argmax(-1, keepdim=True)], 1)
print("generated", ids[0, 14:].tolist())
print("steps with nan logits", broken, "of 10")
