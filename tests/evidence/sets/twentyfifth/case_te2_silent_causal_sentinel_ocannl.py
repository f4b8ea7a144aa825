"""
title: padded prompts give NaN in half although the same mask works in single
expect: silent:overflow
thread: https://github.com/ahrefs/ocannl/issues/548
measured: prompts with NaN 2 of 4
widened: prompts with NaN 0 of 4; innocent: prompts with NaN 2 of 4
suspect: 52 exact (positions below 16)

Expectation, written first: the additive mask (1-keep)*-1e9 is made in half and is minus infinity there; a left-padded
query row then sees only -inf and its softmax is NaN, and the next layer's 0*NaN carries it to every token. Remedy: mask
and scores in float32 (or a smaller sentinel). The positions in int16 are exact.
"""
import torch
from torch import nn


class GPT2Config:
    n_layer = 2
    n_embd = 32
    vocab = 50
    block = 16
    dtype = torch.float16  # BORN


def causal_mask(pad, dtype):
    n = pad.shape[1]
    keep = torch.tril(torch.ones(n, n)).bool()[None] & ~pad[:, None, :]
    return (1.0 - keep.to(dtype)) * -1e9  # BORN


class Block(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.qkv = nn.Linear(cfg.n_embd, 3 * cfg.n_embd)
        self.proj = nn.Linear(cfg.n_embd, cfg.n_embd)

    def forward(self, x, mask):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        scores = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5 + mask
        return x + self.proj(scores.softmax(dim=-1) @ v)


class GPT2Mini(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.wte = nn.Embedding(cfg.vocab, cfg.n_embd)
        self.wpe = nn.Embedding(cfg.block, cfg.n_embd)
        self.h = nn.ModuleList(Block(cfg) for _ in range(cfg.n_layer))

    def forward(self, ids, pad):
        positions = torch.arange(ids.shape[1]).to(torch.int16)
        x = self.wte(ids) + self.wpe(positions.long())
        mask = causal_mask(pad, x.dtype)  # BORN
        for block in self.h:
            x = block(x, mask)
        return x @ self.wte.weight.T


@torch.no_grad()
def main():
    torch.manual_seed(548)
    cfg = GPT2Config()
    model = GPT2Mini(cfg).to(cfg.dtype).eval()  # BORN
    ids = torch.randint(1, cfg.vocab, (4, 12))
    pad = torch.zeros(4, 12, dtype=torch.bool)
    for row, n in enumerate((0, 2, 5, 0)):
        pad[row, :n] = True
    logits = model(ids, pad)
    bad = torch.isnan(logits[:, -1]).any(dim=1)
    print(f"prompts with NaN {int(bad.sum())} of 4")


main()
