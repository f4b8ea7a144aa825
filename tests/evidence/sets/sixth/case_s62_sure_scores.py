"""
title: probabilities close to one are stored as bfloat16, hundreds of different ones become the same and the ranking is gone
expect: silent:precision-loss|downcast|round-trip
fix_at: 19

After https://github.com/Lightning-AI/torchmetrics/issues/2819, https://github.com/Lightning-AI/torchmetrics/pull/3420 and
https://github.com/MaigoAkisame/cmu-thesis/issues/7.
Right: scores are stored as float32 (or as logits).
"""
import torch
from torch import nn

torch.manual_seed(713)


class ScoreStore:
    """Collects the scores of a day for the evening's report."""

    def __init__(self, dtype=torch.bfloat16):
        self.dtype, self.scores, self.labels = dtype, [], []

    def add(self, logits, labels):
        self.scores.append(torch.sigmoid(logits).to(self.dtype))  # BORN
        self.labels.append(labels)

    def table(self):
        return torch.cat(self.scores).float(), torch.cat(self.labels)


def auc(scores, labels):
    """The chance that a good one is above a bad one; ties count half."""
    good, bad = scores[labels == 1], scores[labels == 0]
    gap = good[:, None] - bad[None]
    return ((gap > 0).float() + 0.5 * (gap == 0).float()).mean().item()


class Trained(nn.Module):
    """Stands for a model that was trained: the right weights, and what it does not know."""

    def __init__(self):
        super().__init__()
        self.out = nn.Linear(5, 1)
        with torch.no_grad():
            self.out.weight.copy_(torch.tensor([[1.5, -1.0, 0.0, 0.0, 0.0]]))
            self.out.bias.fill_(8.0)

    def forward(self, x):
        return self.out(x)[:, 0]


def payments(count):
    """Nearly all payments are honest."""
    x = torch.randn(count, 5)
    odds = 8.0 + 1.5 * x[:, 0] - x[:, 1]
    return x, (torch.rand(count) < torch.sigmoid(odds)).float()


model, store, direct = Trained(), ScoreStore(), []
for hour in range(24):
    x, honest = payments(2000)
    with torch.no_grad():
        logits = model(x)
    store.add(logits, honest)
    direct.append(logits)
scores, labels = store.table()
print("auc", round(auc(scores, labels), 4), "of the logits", round(auc(torch.cat(direct), labels), 4), "different scores", len(scores.unique()))
