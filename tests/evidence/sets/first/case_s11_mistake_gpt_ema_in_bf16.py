"""
title: the running average of a GPT's weights is kept in bfloat16 and never moves
expect: silent:lost-update|underflow|precision-loss
fix_at: 129

After d8ahazard/sd_dreambooth_extension#1417 ("Ema fp32: in fp16/bf16 updates to EMA weights will almost always be rounded to 0") and
lucidrains/ema-pytorch#18 ("is bfloat16's precision enough for EMA coefficients?"), in a nanoGPT-like script. Training itself is healthy
(float32 weights, autocast); the copy was made in bfloat16 to save memory and lerp_ with 1 - 0.999 adds less than half its last
bit. Right change: keep the average in float32.
"""
import copy
import math
from contextlib import nullcontext
from dataclasses import dataclass

import torch
import torch.nn as nn
from torch.nn import functional as F

# -----------------------------------------------------------------------------
eval_interval, eval_iters, log_interval = 6, 2, 3
batch_size, block_size = 4, 16
learning_rate, min_lr, warmup_iters, lr_decay_iters = 1e-3, 1e-4, 2, 12
weight_decay, beta1, beta2, grad_clip = 1e-1, 0.9, 0.95, 1.0
dtype = "bfloat16"
max_iters, ema_decay = 18, 0.999
# -----------------------------------------------------------------------------
ptdtype = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[dtype]
ctx = nullcontext() if dtype == "float32" else torch.amp.autocast(device_type="cpu", dtype=ptdtype)


@dataclass
class GPTConfig:
    block_size: int = block_size
    vocab_size: int = 64
    n_layer: int = 2
    n_head: int = 2
    n_embd: int = 32
    bias: bool = False


class CausalSelfAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd, bias=config.bias)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd, bias=config.bias)
        self.n_head = config.n_head

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (self.n_head, -1)).transpose(1, 2) for t in self.c_attn(x).chunk(3, dim=-1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).flatten(-2))


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.n_embd, bias=config.bias)
        self.attn = CausalSelfAttention(config)
        self.ln_2 = nn.LayerNorm(config.n_embd, bias=config.bias)
        self.c_fc = nn.Linear(config.n_embd, 4 * config.n_embd, bias=config.bias)
        self.c_proj = nn.Linear(4 * config.n_embd, config.n_embd, bias=config.bias)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.c_proj(F.gelu(self.c_fc(self.ln_2(x))))


class GPT(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(config.vocab_size, config.n_embd), nn.Embedding(config.block_size, config.n_embd)
        self.h = nn.ModuleList(Block(config) for _ in range(config.n_layer))
        self.ln_f = nn.LayerNorm(config.n_embd, bias=config.bias)
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.wte.weight = self.lm_head.weight
        self.apply(self._init_weights)

    def _init_weights(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, mean=0.0, std=0.02)

    def forward(self, idx, targets=None):
        x = self.wte(idx) + self.wpe(torch.arange(idx.shape[1]))
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        loss = None if targets is None else F.cross_entropy(logits.float().view(-1, logits.size(-1)), targets.view(-1))
        return logits, loss

    def configure_optimizers(self):
        params = [p for p in self.parameters() if p.requires_grad]
        groups = [{"params": [p for p in params if p.dim() >= 2], "weight_decay": weight_decay},
                  {"params": [p for p in params if p.dim() < 2], "weight_decay": 0.0}]
        return torch.optim.AdamW(groups, lr=learning_rate, betas=(beta1, beta2))


torch.manual_seed(1337)
data = torch.randint(64, (2000,)).sort().values.view(40, 50).T.flatten()


def get_batch():
    ix = torch.randint(len(data) - block_size - 1, (batch_size,))
    return (torch.stack([data[i:i + block_size] for i in ix]), torch.stack([data[i + 1:i + 1 + block_size] for i in ix]))


def get_lr(it):
    if it < warmup_iters:
        return learning_rate * (it + 1) / (warmup_iters + 1)
    ratio = min(1.0, (it - warmup_iters) / (lr_decay_iters - warmup_iters))
    return min_lr + 0.5 * (1.0 + math.cos(math.pi * ratio)) * (learning_rate - min_lr)


@torch.no_grad()
def estimate_loss(model):
    model.eval()
    losses = []
    for _ in range(eval_iters):
        with ctx:
            losses.append(model(*get_batch())[1].item())
    model.train()
    return sum(losses) / len(losses)



@torch.no_grad()
def update_ema(ema, model):
    for averaged, current in zip(ema.parameters(), model.parameters()):
        averaged.lerp_(current.to(averaged.dtype), 1 - ema_decay)


model = GPT(GPTConfig())
ema = copy.deepcopy(model).to(torch.bfloat16).requires_grad_(False)  # BORN
optimizer = model.configure_optimizers()

X, Y = get_batch()
for it in range(max_iters):
    for group in optimizer.param_groups:
        group["lr"] = get_lr(it)
    with ctx:
        logits, loss = model(X, Y)
    X, Y = get_batch()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    update_ema(ema, model)
    if it % eval_interval == eval_interval - 1:
        print(f"iter {it}: val finite {math.isfinite(estimate_loss(model))}, ema val finite {math.isfinite(estimate_loss(ema))}")
