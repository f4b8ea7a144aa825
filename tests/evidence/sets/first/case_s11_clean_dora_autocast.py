"""
title: DoRA over a frozen bfloat16 base, its norm in float32, trained under autocast
expect: clean

The healthy twin of dora_norm: adapters and magnitude are float32 (an optimizer trains them), the base is frozen in bfloat16, the
merged weight is made in float32 and autocast casts it for the matmul. Nothing is lost: Adam steps of 2e-3 on float32.
"""
import torch
import torch.nn.functional as F
from torch import nn


class DoRALinear(nn.Module):
    def __init__(self, base, rank=2, alpha=4.0):
        super().__init__()
        self.base, self.scale = base.requires_grad_(False), alpha / rank
        self.down = nn.Parameter(0.3 * torch.randn(rank, base.in_features))
        self.up = nn.Parameter(torch.zeros(base.out_features, rank))
        self.magnitude = nn.Parameter(base.weight.detach().float().norm(dim=1, keepdim=True))

    def merged(self):
        weight = self.base.weight.float() + (self.up @ self.down) * self.scale
        return weight * (self.magnitude / weight.norm(dim=1, keepdim=True).detach())

    def forward(self, x):
        return F.linear(x, self.merged())


class Block(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.norm = nn.LayerNorm(width).requires_grad_(False)
        base = (nn.Linear(width, width, bias=False, dtype=torch.bfloat16) for _ in range(2))
        self.inp, self.out = (DoRALinear(b) for b in base)

    def forward(self, x):
        return x + self.out(F.gelu(self.inp(self.norm(x))))


torch.manual_seed(0)
model = nn.Sequential(Block(), Block())
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=2e-3, weight_decay=0.0)
x = torch.randn(32, 16)
target = x @ torch.randn(16, 16) / 4
first = None
for step in range(12):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = model(x)
    loss = F.mse_loss(out.float(), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    first = first or loss.item()
print(loss.item() < first)
