"""
title: a bfloat16 table is trained with stochastic rounding, so that small steps arrive on average
expect: clean

After https://github.com/pytorch/ao/pull/1124 and https://github.com/pytorch/pytorch/issues/120376.
"""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(301)


def round_by_chance(x):
    """float32 to bfloat16, up or down with the probability of what is cut off."""
    bits = x.contiguous().view(torch.int32)
    noise = torch.randint(0, 1 << 16, bits.shape, dtype=torch.int32)
    return ((bits + noise) & -65536).view(torch.float32).to(torch.bfloat16)


class ChanceSGD(torch.optim.Optimizer):
    def __init__(self, params, lr, momentum=0.9):
        super().__init__(params, dict(lr=lr, momentum=momentum))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if "speed" not in state:
                    state["speed"] = torch.zeros_like(p, dtype=torch.float32)
                state["speed"].mul_(group["momentum"]).add_(p.grad.float())
                p.copy_(round_by_chance(p.float() - group["lr"] * state["speed"]))


class Pairs(nn.Module):
    """Skip-gram in small: words that follow each other have similar rows."""

    def __init__(self, words=64, dim=24):
        super().__init__()
        self.inside, self.outside = nn.Embedding(words, dim), nn.Embedding(words, dim)
        for table in (self.inside, self.outside):
            nn.init.normal_(table.weight, std=0.3)

    def forward(self, words):
        return self.inside(words).float() @ self.outside.weight.float().t()


model = Pairs().to(torch.bfloat16)
optimizer = ChanceSGD(model.parameters(), lr=0.05)
for step in range(200):
    words = torch.randint(0, 64, (256,))
    loss = F.cross_entropy(model(words), (words + 1) % 64)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
right = (model(torch.arange(64)).argmax(-1) == (torch.arange(64) + 1) % 64).float().mean().item()
print("loss", round(loss.item(), 3), "accuracy", round(right, 3))
