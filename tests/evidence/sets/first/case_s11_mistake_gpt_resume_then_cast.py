"""
title: on resume the model is cast after the optimizer has its float32 state
expect: collision
fix_at: 137, 138

After Lightning-AI/pytorch-lightning#16303 ("Found dtype Half but expected Float in optimizer") in a nanoGPT-like script. The first run
trained in float32; the resumed one loads the model and Adam's moments, both float32, and only then casts the model "to save
memory": from there on gradients are bfloat16, exp_avg is not, and lerp_ in step() refuses. Right change: no cast (autocast is
there), or before the optimizer is made and loaded.
"""
import math
import os
import tempfile
from contextlib import nullcontext
from dataclasses import asdict, dataclass

import torch
import torch.nn as nn
from torch.nn import functional as F

# -----------------------------------------------------------------------------
eval_interval, eval_iters, log_interval = 6, 2, 3
batch_size, block_size = 4, 16
learning_rate, min_lr, warmup_iters, lr_decay_iters = 1e-3, 1e-4, 2, 12
weight_decay, beta1, beta2, grad_clip = 1e-1, 0.9, 0.95, 1.0
dtype = "bfloat16"
max_iters = 4
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



def train(init_from, out_dir, iters):
    config, iter_num = GPTConfig(), 0
    path = os.path.join(out_dir, "ckpt.pt")
    if init_from == "scratch":
        model = GPT(config)
        optimizer = model.configure_optimizers()
    else:
        checkpoint = torch.load(path, map_location="cpu")
        model = GPT(GPTConfig(**checkpoint["model_args"]))
        model.load_state_dict(checkpoint["model"])
        optimizer = model.configure_optimizers()
        optimizer.load_state_dict(checkpoint["optimizer"])
        iter_num = checkpoint["iter_num"]
        checkpoint = None
        model.to(dtype=ptdtype)  # BORN

    X, Y = get_batch()
    for it in range(iter_num, iter_num + iters):
        for group in optimizer.param_groups:
            group["lr"] = get_lr(it)
        with ctx:
            logits, loss = model(X, Y)
        X, Y = get_batch()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
        optimizer.step()  # COLLIDES
        optimizer.zero_grad(set_to_none=True)
        if it % log_interval == 0:
            print(f"iter {it}: finite {math.isfinite(loss.item())}, val finite {math.isfinite(estimate_loss(model))}")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "model_args": asdict(config),
                "iter_num": iter_num + iters}, path)


with tempfile.TemporaryDirectory() as out_dir:
    train("scratch", out_dir, max_iters)
    train("resume", out_dir, max_iters)
