"""
title: a mixture of experts with a float32 router in a bfloat16 model
expect: clean

Router logits and gates are float32 because rounding would change which expert is chosen; the gates are brought to
the stream's dtype before they weigh it.
"""
import torch
import torch.nn.functional as F
from torch import nn


class Mixture(nn.Module):
    def __init__(self, width, count, chosen=2):
        super().__init__()
        self.chosen = chosen
        self.router = nn.Linear(width, count, bias=False)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width)) for _ in range(count))

    def forward(self, x):
        logits = F.linear(x.float(), self.router.weight.float())
        gate, expert = logits.softmax(dim=-1).topk(self.chosen, dim=-1)
        gate = (gate / gate.sum(dim=-1, keepdim=True)).to(x.dtype)
        out = torch.zeros_like(x)
        for number, layer in enumerate(self.experts):
            row, slot = (expert == number).nonzero(as_tuple=True)
            out = out.index_add(0, row, layer(x[row]) * gate[row, slot, None])
        return x + out, logits.logsumexp(dim=-1).square().mean()


torch.manual_seed(0)
layers = nn.ModuleList(Mixture(16, 4) for _ in range(2)).bfloat16()
head = nn.Linear(16, 4).bfloat16()
parameters = [*layers.parameters(), *head.parameters()]
optimizer = torch.optim.SGD(parameters, lr=0.5)
for _ in range(3):
    x, penalty = torch.randn(24, 16).bfloat16(), 0.0
    label = x.float()[:, :4].argmax(dim=-1)
    for layer in layers:
        x, extra = layer(x)
        penalty = penalty + 1e-3 * extra
    loss = F.cross_entropy(head(x).float(), label) + penalty
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(x.dtype, loss.dtype)