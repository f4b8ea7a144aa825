"""
title: bfloat16 weights trained through float32 master copies
expect: clean

The classical recipe by hand: gradients are widened, the optimizer only knows the float32 copies, and what it makes of
them is cast down for the next forward.
"""
import torch
import torch.nn.functional as F
from torch import nn


class MasterWeights:
    def __init__(self, model, make):
        self.low = [p for p in model.parameters() if p.requires_grad]
        self.high = [p.detach().float().requires_grad_() for p in self.low]
        self.optimizer = make(self.high)

    def step(self):
        for low, high in zip(self.low, self.high):
            high.grad = low.grad.float()
            low.grad = None
        norm = nn.utils.clip_grad_norm_(self.high, 1.0)
        self.optimizer.step()
        with torch.no_grad():
            for low, high in zip(self.low, self.high):
                low.copy_(high.to(low.dtype))
        return norm.item()


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4)).bfloat16()
master = MasterWeights(model, lambda weights: torch.optim.AdamW(weights, lr=2e-2))
losses = []
for _ in range(6):
    x = torch.randn(32, 8)
    label = x[:, :4].argmax(dim=-1)
    loss = F.cross_entropy(model(x.bfloat16()).float(), label)
    loss.backward()
    master.step()
    losses.append(round(loss.item(), 3))
print(losses)
assert losses[-1] < losses[0]
