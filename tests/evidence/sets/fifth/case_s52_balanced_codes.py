"""
title: Sinkhorn's first step exponentiates float16 scores over a small temperature, the large ones are infinite
expect: silent:overflow|downcast
fix_at: 59

After https://github.com/facebookresearch/swav/issues/67 and https://github.com/galilai-group/stable-pretraining/pull/288.
Right: the scores are float32 before the exponential.
"""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(212)


class Prototypes(nn.Module):
    def __init__(self, dim=16, count=8):
        super().__init__()
        self.layer = nn.Linear(dim, count, bias=False)

    def forward(self, z):
        return F.linear(F.normalize(z.float(), dim=1), F.normalize(self.layer.weight, dim=1))


class Balancer:
    def __init__(self, temperature=0.05, rounds=3):
        self.temperature, self.rounds = temperature, rounds

    @torch.no_grad()
    def __call__(self, scores):
        plan = torch.exp(scores / self.temperature).t()  # BORN
        plan = plan / plan.sum()
        for _ in range(self.rounds):
            plan = plan / plan.sum(1, keepdim=True) / plan.shape[0]
            plan = plan / plan.sum(0, keepdim=True) / plan.shape[1]
        return (plan * plan.shape[1]).t()


class Encoder(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(20, 64), nn.GELU(), nn.Linear(64, dim))

    def forward(self, x):
        return self.net(x)


def views(count):
    centre = torch.randn(4, 20)[torch.randint(0, 4, (count,))]
    return centre + 0.3 * torch.randn(count, 20), centre + 0.3 * torch.randn(count, 20)


encoder, prototypes, balance = Encoder(), Prototypes(), Balancer()
optimizer = torch.optim.SGD([*encoder.parameters(), *prototypes.parameters()], lr=0.05)
kept = finite = 0
for step in range(12):
    left, right = views(64)
    with torch.autocast("cpu", dtype=torch.float16):
        a, b = prototypes(encoder(left)), prototypes(encoder(right))
    codes = balance(a.detach())
    good = torch.isfinite(codes).all(1)
    kept += int(good.sum())
    finite += len(good)
    loss = -(codes.float() * (b.float() / 0.1).log_softmax(-1)).sum(-1)
    loss = loss[good].mean() if good.any() else 0.0 * b.float().sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("samples with a code", round(kept / finite, 3), "loss", round(loss.item(), 4))
