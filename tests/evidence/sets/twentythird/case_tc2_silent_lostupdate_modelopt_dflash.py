"""
title: the norm weights of the bfloat16 draft stay at exactly 1.0 while the loss keeps falling
expect: silent:lost-update|precision-loss
thread: https://github.com/NVIDIA/Model-Optimizer/pull/2322
measured: loss 0.0265 -> 0.0055 | norm weights still exactly 1.0: 56 of 56 | furthest norm weight from 1.0: 0.0000
widened: loss 0.0264 -> 0.0029 | norm weights still exactly 1.0: 0 of 56 | furthest norm weight from 1.0: 0.1369
innocent: loss 0.0265 -> 0.0055 | norm weights still exactly 1.0: 56 of 56 | furthest norm weight from 1.0: 0.0000
suspect: line 73, inputs are rounded once and carry no state

Expectation, written first: the draft is created in bfloat16 and AdamW steps on those weights. Around 1.0 the spacing downward is 0.0039, so a
step of at most lr = 1e-3 rounds back and every RMSNorm weight stays exactly 1.0; the linear weights near zero do move. With float32
weights the norms learn. The hidden states of the target model in bfloat16 are innocent.
"""
import torch
from torch import nn
import torch.nn.functional as F


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x):
        h = x.float()
        h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * h.to(self.weight.dtype)


class DFlashAttention(nn.Module):
    def __init__(self, dim, head_dim):
        super().__init__()
        self.q_proj = nn.Linear(dim, head_dim, bias=False)
        self.k_proj = nn.Linear(dim, head_dim, bias=False)
        self.v_proj = nn.Linear(dim, dim, bias=False)
        self.q_norm, self.k_norm = RMSNorm(head_dim), RMSNorm(head_dim)

    def forward(self, x):
        q, k = self.q_norm(self.q_proj(x)), self.k_norm(self.k_proj(x))
        att = (q @ k.transpose(-1, -2)).float() / q.shape[-1] ** 0.5
        return att.softmax(-1).to(x.dtype) @ self.v_proj(x)


class DFlashDraft(nn.Module):
    def __init__(self, dim=24, head_dim=16):
        super().__init__()
        self.attn = DFlashAttention(dim, head_dim)
        self.norm = RMSNorm(dim)
        self.out = nn.Linear(dim, dim, bias=False).requires_grad_(False)

    def forward(self, hidden):
        x = hidden.to(self.out.weight.dtype)
        return self.out(self.norm(x + self.attn(x)))


def convert(config):
    torch.manual_seed(config["seed"])
    draft = DFlashDraft().to(config["dtype"])  # BORN
    return draft


class HiddenStateDump:
    def __init__(self, g, lm_head):
        self.g = g
        self.lm_head = lm_head.float()
        self.gain = 0.8 + 0.4 * torch.rand(24, generator=g)

    def batch(self):
        h = 3.0 * torch.randn(4, 8, 24, generator=self.g)
        rms = h.pow(2).mean(-1, keepdim=True).sqrt()
        target = F.linear(h / rms * self.gain, self.lm_head)
        return h.to(torch.bfloat16), target


config = {"seed": 0, "dtype": torch.bfloat16, "lr": 1e-3}  # BORN
draft = convert(config)
opt = torch.optim.AdamW([p for p in draft.parameters() if p.requires_grad], lr=config["lr"], weight_decay=0.0)  # BORN
dump = HiddenStateDump(torch.Generator().manual_seed(1), draft.out.weight)
losses = []
for step in range(220):
    hidden, target = dump.batch()
    loss = F.mse_loss(draft(hidden).float(), target)
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
print("loss %.4f -> %.4f" % (losses[0], sum(losses[-20:]) / 20))
norms = torch.cat([m.weight.detach().float() for m in draft.modules() if isinstance(m, RMSNorm)])
print("norm weights still exactly 1.0: %d of %d" % ((norms == 1).sum(), norms.numel()))
print("furthest norm weight from 1.0: %.4f" % (norms - 1).abs().max())
