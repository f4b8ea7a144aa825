"""
title: a router with 256 experts rounds its sigmoid scores to the activations' bfloat16 before top-k
expect: silent:precision-loss|downcast|round-trip
fix_at: 27

After https://github.com/ViperEkura/AstrAI/pull/57 and https://github.com/marin-community/marin/pull/4234: rounded scores tie and the order of
the experts decides. The cast of the chosen weights for the combine step is innocent.
Here 0.29 of all tokens go to other experts than their logits say (repaired: none). Right: choose on float32 scores.
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(26)


class Router(nn.Module):
    def __init__(self, dim, experts, k):
        super().__init__()
        self.k = k
        self.bias = nn.Parameter(torch.full((experts,), 1.5))
        self.weight = nn.Parameter(0.25 * torch.randn(experts, dim) / dim ** 0.5)

    def forward(self, x):
        logits = F.linear(x.float(), self.weight.float(), self.bias)
        scores = logits.sigmoid().to(x.dtype)  # BORN
        weights, chosen = scores.topk(self.k, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        return weights.to(torch.bfloat16), chosen, logits


class MoE(nn.Module):
    def __init__(self, dim=32, experts=256, k=4):
        super().__init__()
        self.router = Router(dim, experts, k)
        self.up = nn.Parameter(torch.randn(experts, dim, 2 * dim) / dim ** 0.5)
        self.down = nn.Parameter(torch.randn(experts, 2 * dim, dim) / dim)

    def forward(self, x):
        weights, chosen, logits = self.router(x)
        out = torch.zeros_like(x)
        for slot in range(chosen.shape[1]):
            e = chosen[:, slot]
            h = F.silu(torch.einsum("td,tdh->th", x, self.up[e].to(x.dtype)))
            out = out + weights[:, slot, None].to(x.dtype) * torch.einsum("th,thd->td", h, self.down[e].to(x.dtype))
        self.moved = self.differs(chosen, logits)
        return x + out

    @torch.no_grad()
    def differs(self, chosen, logits):
        wanted = logits.topk(chosen.shape[1], dim=-1).indices.sort(-1).values
        return (chosen.sort(-1).values != wanted).any(-1).float().mean().item()


model = MoE()
head = nn.Linear(32, 8)
optimizer = torch.optim.AdamW([*model.parameters(), *head.parameters()], lr=2e-3)
for step in range(5):
    x = torch.randn(256, 32)
    target = x[:, :8].argmax(-1)
    y = model(x.to(torch.bfloat16))
    loss = F.cross_entropy(head(y.float()), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, "loss", round(loss.item(), 4), "tokens sent elsewhere", round(model.moved, 3))
