"""
title: DoRA takes the weight norm in float32 and hands the float32 weight to the matmul
expect: collision
fix_at: 28

After Nerogar/OneTrainer#1479 ("self and mat2 must have the same dtype, but got BFloat16 and Float" with DoRA and bfloat16).
The norm is rightly taken in float32, but the widened weight itself is what is returned: everything else is bfloat16.
Right change: return the merged weight in the base's dtype (or widen for the norm only).
"""
import torch
import torch.nn.functional as F
from torch import nn


class DoRALinear(nn.Module):
    def __init__(self, base, rank=2, alpha=4.0):
        super().__init__()
        dtype = base.weight.dtype
        self.base, self.scale = base.requires_grad_(False), alpha / rank
        self.down = nn.Parameter(0.1 * torch.randn(rank, base.in_features, dtype=dtype))
        self.up = nn.Parameter(torch.zeros(base.out_features, rank, dtype=dtype))
        self.magnitude = nn.Parameter(base.weight.detach().norm(dim=1, keepdim=True))

    def merged(self):
        delta = (self.up @ self.down) * self.scale
        weight = self.base.weight.float() + delta  # BORN
        norm = weight.norm(dim=1, keepdim=True).detach()
        return weight * (self.magnitude / norm)

    def forward(self, x):
        return F.linear(x, self.merged())  # COLLIDES


class Attention(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.to_q, self.to_k, self.to_v, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, x):
        h = self.norm(x)
        return x + self.out(F.scaled_dot_product_attention(self.to_q(h), self.to_k(h), self.to_v(h)))


def inject(model, names):
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if name in names and isinstance(child, nn.Linear):
                setattr(parent, name, DoRALinear(child))
    return [p for n, p in model.named_parameters() if n.split(".")[-1] in ("down", "up", "magnitude")]


torch.manual_seed(0)
model = nn.Sequential(Attention(), Attention()).to(torch.bfloat16)
trained = inject(model, {"to_q", "to_v"})
optimizer = torch.optim.SGD(trained, lr=0.1)
x = torch.randn(2, 6, 16, dtype=torch.bfloat16)
for step in range(2):
    loss = model(x).float().square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(step, loss.isfinite().item())
