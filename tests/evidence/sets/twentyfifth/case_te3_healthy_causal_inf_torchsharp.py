"""
title: Causal mask of -inf in half-precision attention scores
expect: clean
thread: https://github.com/dotnet/TorchSharp/issues/1135
measured: loss 3.63 perplexity 38 weight on the future 0.0 / finite True
suspect: 34 harmless (no row is wholly masked; exp(-inf) is exactly 0)

Expectation, written first: The scores are half and the upper triangle is filled with -inf, which half has. Each
row keeps at least its own position, so the softmax is finite and the future weights are exactly zero. The half
rounding moves the loss in the third digit after the point at most; two are printed.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F


class Config:
    vocab, dim, heads, layers, block = 24, 32, 4, 2, 16
    dtype = torch.float16


class CausalSelfAttention(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.heads = cfg.heads
        self.wqkv = nn.Linear(cfg.dim, 3 * cfg.dim, bias=False)
        self.wo = nn.Linear(cfg.dim, cfg.dim, bias=False)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.wqkv(x).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        weight = q @ k.transpose(-2, -1) * (c // self.heads) ** -0.5
        mask = torch.ones(t, t, dtype=torch.bool).triu(1)
        weight = weight.masked_fill(mask, float("-inf"))
        weight = F.softmax(weight, dim=-1, dtype=torch.float32).to(v.dtype)
        self.future = weight.masked_select(mask).abs().sum().item()
        return self.wo((weight @ v).transpose(1, 2).reshape(b, t, c))


class Block(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(cfg.dim), nn.LayerNorm(cfg.dim)
        self.attn = CausalSelfAttention(cfg)
        self.mlp = nn.Sequential(nn.Linear(cfg.dim, 2 * cfg.dim), nn.GELU(), nn.Linear(2 * cfg.dim, cfg.dim))

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class Transformer(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.tok = nn.Embedding(cfg.vocab, cfg.dim)
        self.pos = nn.Embedding(cfg.block, cfg.dim)
        self.blocks = nn.ModuleList(Block(cfg) for _ in range(cfg.layers))
        self.head = nn.Linear(cfg.dim, cfg.vocab, bias=False)

    def forward(self, idx):
        x = self.tok(idx) + self.pos(torch.arange(idx.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(x).float()


@torch.no_grad()
def main():
    torch.manual_seed(1135)
    cfg = Config()
    model = Transformer(cfg).to(cfg.dtype).eval()
    idx = torch.randint(0, cfg.vocab, (8, cfg.block))
    logits = model(idx)
    loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), idx[:, 1:].flatten())
    future = sum(block.attn.future for block in model.blocks)
    print(f"loss {loss.item():.2f} perplexity {loss.exp().item():.0f} weight on the future {future:.1f}")
    print("finite", bool(torch.isfinite(logits).all()))


if __name__ == "__main__":
    main()
