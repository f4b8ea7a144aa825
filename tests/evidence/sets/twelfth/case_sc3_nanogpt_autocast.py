"""
title: a nanoGPT-like trainer: bfloat16 autocast over float32 weights, accumulation, clipping, cosine schedule
expect: clean
thread: https://github.com/karpathy/nanoGPT/pull/87
measured: loss 3.748 -> 2.406 (float32 2.406), worst difference 0.0004

Expectation, written first: parameters, gradients, Adam moments and the loss are float32, only the matrix products are
rounded to bfloat16; the loss curve stays within a few thousandths of a float32 run.
"""
import contextlib
import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class GPTConfig:
    block_size: int = 24
    vocab_size: int = 40
    n_layer: int = 2
    n_head: int = 2
    n_embd: int = 32


class CausalSelfAttention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c_attn, self.c_proj, self.n_head = nn.Linear(c.n_embd, 3 * c.n_embd), nn.Linear(c.n_embd, c.n_embd), c.n_head

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (self.n_head, -1)).transpose(1, 2) for t in self.c_attn(x).chunk(3, dim=-1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.ln_1, self.attn, self.ln_2 = nn.LayerNorm(c.n_embd), CausalSelfAttention(c), nn.LayerNorm(c.n_embd)
        self.mlp = nn.Sequential(nn.Linear(c.n_embd, 4 * c.n_embd), nn.GELU(), nn.Linear(4 * c.n_embd, c.n_embd))

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(c.vocab_size, c.n_embd), nn.Embedding(c.block_size, c.n_embd)
        self.h, self.ln_f = nn.ModuleList(Block(c) for _ in range(c.n_layer)), nn.LayerNorm(c.n_embd)
        self.lm_head = nn.Linear(c.n_embd, c.vocab_size, bias=False)
        for m in self.modules():
            if isinstance(m, (nn.Linear, nn.Embedding)):
                nn.init.normal_(m.weight, std=0.02)

    def forward(self, idx, targets):
        x = self.wte(idx) + self.wpe(torch.arange(idx.shape[1]))
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


def get_lr(it, peak=3e-3, low=3e-4, warmup=5, total=40):
    if it < warmup:
        return peak * (it + 1) / warmup
    return low + 0.5 * (1 + math.cos(math.pi * (it - warmup) / (total - warmup))) * (peak - low)


def configure_optimizer(model):
    decay = [p for p in model.parameters() if p.dim() >= 2]
    rest = [p for p in model.parameters() if p.dim() < 2]
    return torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}], betas=(0.9, 0.95))


def train(amp, steps=40, accumulate=2):
    torch.manual_seed(1337)
    model = GPT(GPTConfig())
    optimizer = configure_optimizer(model)
    ctx = torch.autocast("cpu", dtype=torch.bfloat16) if amp else contextlib.nullcontext()
    data = torch.tensor([ord(c) % 40 for c in "first citizen: before we proceed any further, hear me speak. " * 12])
    g, losses = torch.Generator().manual_seed(1), []
    for it in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = get_lr(it, total=steps)
        total = 0.0
        for _ in range(accumulate):
            start = torch.randint(0, len(data) - 25, (8,), generator=g)
            xy = torch.stack([data[s : s + 25] for s in start])
            with ctx:
                loss = model(xy[:, :-1], xy[:, 1:]) / accumulate
            loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(total)
    return losses


if __name__ == "__main__":
    amp, full = train(amp=True), train(amp=False)
    worst = max(abs(a - b) for a, b in zip(amp, full))
    assert worst < 0.05, worst
    print(f"loss {full[0]:.3f} -> {amp[-1]:.3f} (float32 {full[-1]:.3f}), worst difference {worst:.4f}")
