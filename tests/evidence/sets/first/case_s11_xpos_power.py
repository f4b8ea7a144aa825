"""
title: the decay of xpos is a power of an int / int ratio and widens query and key
expect: collision
fix_at: 23

After lucidrains/rotary-embedding-torch#9 (use_xpos=True turns bfloat16 into float32; "Query/Key/Value should either all have the
same dtype"). The buffer `scale` was cast with the model, but its exponent is made afresh in each forward from integers: float32.
Two of the three operands are wrong, the value is right. Right change: the exponent (or the decay) in the scale's dtype.
"""
import torch
import torch.nn.functional as F
from torch import nn


class XPos(nn.Module):
    def __init__(self, dim, base=64):
        super().__init__()
        self.base = base
        self.register_buffer("scale", (torch.arange(0, dim) + 0.4 * dim) / (1.4 * dim))

    def decay(self, length):
        power = (torch.arange(length) - length // 2) / self.base  # BORN
        return self.scale ** power[:, None]

    def forward(self, q, k):
        decay = self.decay(q.shape[-2])
        return q * decay, k / decay


class Attention(nn.Module):
    def __init__(self, width=16, heads=2, xpos=None):
        super().__init__()
        self.heads, self.xpos = heads, xpos
        self.norm = nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def attend(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)  # COLLIDES

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, -1))
        if self.xpos is not None:
            q, k = self.xpos(q, k)
        return x + self.out(self.attend(q, k, v).transpose(1, 2).flatten(-2))


torch.manual_seed(0)
model = nn.Sequential(Attention(), Attention(xpos=XPos(8)), Attention(xpos=XPos(8))).to(torch.bfloat16)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for step in range(2):
    loss = model(torch.randn(2, 6, 16).to(torch.bfloat16)).float().square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(step)
