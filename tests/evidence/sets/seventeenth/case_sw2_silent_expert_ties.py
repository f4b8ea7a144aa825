"""
title: MoE router picks other experts than the FP32 gate: the probabilities are cast to BF16 before topk
expect: silent:downcast|precision-loss
thread: https://github.com/ViperEkura/AstrAI/pull/57
measured: tokens with an expert outside the gate's top 4: 71.3%  checksum of ids 1800998; load max/mean 2.26  output norm 23.13
widened: tokens with an expert outside the gate's top 4: 0.0%  checksum of ids 1824846; load max/mean 2.05  output norm 23.15
innocent: tokens with an expert outside the gate's top 4: 71.3%  checksum of ids 1800998; load max/mean 2.26  output norm 23.14
suspect: 40 bf16 dispatch weights: late (a relative 0.4% on the mixing weight, after the choice)

Expectation, written first: The softmax is float32, but the whole distribution is cast to the activation dtype before topk. Near the start
    the 64 probabilities lie within a few bf16 steps, so they tie and topk picks among equals: the load piles up and the picked logits are
    not the largest. The cast of the selected weights is harmless.
"""
import torch
from torch import nn
import torch.nn.functional as F


class Expert(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.up, self.down = nn.Linear(dim, hidden, bias=False), nn.Linear(hidden, dim, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.up(x)))


class DeepSeekMoE(nn.Module):
    def __init__(self, dim=32, n_routed=64, topk=4):
        super().__init__()
        self.topk = topk
        self.gate = nn.Parameter(torch.randn(n_routed, dim) * 0.002)
        self.experts = nn.ModuleList(Expert(dim, 16) for _ in range(n_routed))

    def _select_experts(self, x):
        logits = F.linear(x.float(), self.gate.float())
        probs = F.softmax(logits, dim=-1).to(x.dtype)  # BORN
        weights, idx = probs.topk(self.topk, dim=-1)
        weights = weights.float() / weights.float().sum(-1, keepdim=True)
        return weights.to(torch.bfloat16), idx, logits
    def forward(self, x):
        weights, idx, logits = self._select_experts(x)
        out = torch.zeros_like(x)
        for e, expert in enumerate(self.experts):
            tok, slot = (idx == e).nonzero(as_tuple=True)
            if len(tok):
                y = expert(x[tok]).float() * weights[tok, slot, None].float()
                out.index_add_(0, tok, y.to(out.dtype))
        return out, idx, logits


torch.manual_seed(0)
moe = DeepSeekMoE().to(torch.bfloat16)
x = torch.randn(2048, 32).to(torch.bfloat16)
with torch.no_grad():
    out, idx, logits = moe(x)
load = torch.bincount(idx.flatten(), minlength=64).float()
missed = (logits.gather(1, idx).min(1).values < logits.topk(4, dim=1).values[:, -1]).float().mean()
print(f"tokens with an expert outside the gate's top 4: {100 * missed:.1f}%  checksum of ids {int((idx.sort(1).values * torch.tensor([1, 3, 7, 11])).sum())}")
print(f"load max/mean {load.max() / load.mean():.2f}  output norm {out.float().norm():.2f}")
