"""
title: the master weights are split: the model holds the upper half of the bits as bfloat16, the optimizer the lower half
expect: clean

After https://github.com/pytorch/pytorch/issues/120376 and https://github.com/workofart/ml-by-hand/pull/85.
"""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(306)


def split(x):
    """float32 bits as a truncated bfloat16 and the 16 bits below it."""
    bits = x.contiguous().view(torch.int32)
    upper = (bits >> 16).to(torch.int16).view(torch.bfloat16)
    lower = (bits & 0xFFFF).to(torch.int32)
    return upper, (lower - 32768).to(torch.int16)


def join(upper, lower):
    high = upper.contiguous().view(torch.int16).to(torch.int32) << 16
    return (high | (lower.to(torch.int32) + 32768)).view(torch.float32)


class SplitAdam(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.98), eps=1e-8):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    zero = torch.zeros_like(p, dtype=torch.float32)
                    state.update(count=0, lower=split(p.float())[1], m=zero, v=zero.clone())
                state["count"] += 1
                grad = p.grad.float()
                state["m"].lerp_(grad, 1 - b1)
                state["v"].mul_(b2).addcmul_(grad, grad, value=1 - b2)
                m, v = state["m"] / (1 - b1 ** state["count"]), state["v"] / (1 - b2 ** state["count"])
                whole = join(p, state["lower"]) - group["lr"] * m / (v.sqrt() + group["eps"])
                upper, state["lower"] = split(whole)
                p.copy_(upper)


class Translator(nn.Module):
    def __init__(self, words=40, dim=32):
        super().__init__()
        self.embed = nn.Embedding(words, dim)
        self.first, self.second = nn.Linear(dim, 64), nn.Linear(64, dim)
        self.norm, self.out = nn.LayerNorm(dim), nn.Linear(dim, words)

    def forward(self, ids):
        x = self.embed(ids)
        return self.out(self.norm(x + self.second(F.gelu(self.first(x)))))


model = Translator().to(torch.bfloat16)
optimizer = SplitAdam(model.parameters(), lr=1e-3)
for step in range(150):
    ids = torch.randint(0, 40, (16, 8))
    loss = F.cross_entropy(model(ids).float().flatten(0, 1), (ids * 3 % 40).flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("loss", round(loss.item(), 3))
