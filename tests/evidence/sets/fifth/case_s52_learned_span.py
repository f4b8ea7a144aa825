"""
title: a learned attention span is rounded to whole positions, its gradient ends there
expect: silent:zero-gradient|round-trip|downcast
fix_at: 28, 29

After https://github.com/facebookresearch/supervision-by-registration/issues/41 (argmax cuts the gradient, a soft form lets it through).
Right: a soft edge of the mask.
"""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(206)


class SpanAttention(nn.Module):
    """Looks back as far as it has learned to, and pays for it."""

    def __init__(self, dim=16, longest=24):
        super().__init__()
        self.longest = longest
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.span = nn.Parameter(torch.tensor(20.0))

    def window(self, length):
        distance = torch.arange(length)[:, None] - torch.arange(length)[None]
        reach = self.span.clamp(1, self.longest).round().long()  # BORN
        seen = ((distance >= 0) & (distance < reach)).float()
        return seen

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5
        weight = scores.softmax(-1) * self.window(x.shape[1])
        weight = weight / (weight.sum(-1, keepdim=True) + 1e-8)
        return self.out(weight @ v), weight

    def cost(self):
        return self.window(self.longest)[-1].sum() / self.longest


class Copier(nn.Module):
    def __init__(self, symbols=12, dim=16, longest=24):
        super().__init__()
        self.embed = nn.Embedding(symbols, dim)
        self.place = nn.Parameter(0.1 * torch.randn(longest, dim))
        self.attend, self.head = SpanAttention(dim, longest), nn.Linear(dim, symbols)

    def forward(self, ids):
        x = self.embed(ids) + self.place[:ids.shape[1]]
        y, _ = self.attend(x)
        return self.head(x + y)


model = Copier()
optimizer = torch.optim.Adam([{"params": [p for n, p in model.named_parameters() if n != "attend.span"], "lr": 5e-3},
                              {"params": [model.attend.span], "lr": 0.2}])
for step in range(80):
    ids = torch.randint(0, 12, (16, 24))
    target = torch.cat([ids[:, :2], ids[:, :-2]], dim=1)
    loss = F.cross_entropy(model(ids)[:, 2:].flatten(0, 1), target[:, 2:].flatten()) + 0.5 * model.attend.cost()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("span", round(model.attend.span.item(), 2), "cost", round(model.attend.cost().item(), 3), "loss", round(loss.item(), 3))
