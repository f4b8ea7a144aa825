"""
title: the mass that label smoothing gives to the other classes is filled into an integer tensor and is zero
expect: silent:downcast|underflow|precision-loss|round-trip
fix_at: 21

After https://github.com/harvardnlp/annotated-transformer/issues/38 and https://github.com/TimDettmers/ConvE/issues/55.
Right: the one-hot targets are floats before anything like them is made.
"""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(207)


class Smoother:
    def __init__(self, classes, amount):
        self.classes, self.amount = classes, amount

    def __call__(self, labels):
        hot = F.one_hot(labels, self.classes)
        rest = torch.full_like(hot, self.amount / self.classes)  # BORN
        return hot * (1 - self.amount) + rest


def clusters(count, classes, centres):
    labels = torch.randint(0, classes, (count,))
    return centres[labels] + 0.5 * torch.randn(count, centres.shape[1]), labels


class Head(nn.Module):
    def __init__(self, dim=12, hidden=48, classes=6):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim, hidden), nn.GELU(), nn.Linear(hidden, classes))

    def forward(self, x):
        return self.net(x)


def train(steps=300, classes=6, amount=0.2):
    centres = torch.randn(classes, 12)
    model, smooth = Head(classes=classes), Smoother(classes, amount)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(steps):
        x, labels = clusters(64, classes, centres)
        log_probs = model(x).log_softmax(-1)
        loss = -(smooth(labels) * log_probs).sum(-1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    x, labels = clusters(512, classes, centres)
    with torch.no_grad():
        probs = model(x).softmax(-1)
    return probs.amax(-1).mean().item(), (probs.argmax(-1) == labels).float().mean().item(), smooth(labels).sum(-1).mean().item()


sure, right, mass = train()
print("confidence", round(sure, 3), "accuracy", round(right, 3), "mass of a target", round(mass, 3))
