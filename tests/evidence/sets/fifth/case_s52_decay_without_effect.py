"""
title: weight decay in a bfloat16 model multiplies by 0.999, which bfloat16 weights do not notice
expect: silent:lost-update|precision-loss|downcast
fix_at: 53, 58

After https://github.com/Nerogar/OneTrainer/issues/996 and https://github.com/workofart/ml-by-hand/pull/85.
Right: the trained weights are float32, the products may be bfloat16.
"""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(205)


class Regressor(nn.Module):
    def __init__(self, dim=64, hidden=64):
        super().__init__()
        self.first, self.second = nn.Linear(dim, hidden), nn.Linear(hidden, 1)

    def forward(self, x):
        return self.second(F.relu(self.first(x)))[:, 0]


def data(count, useful=6, dim=64):
    """Few of the inputs matter, the others ought to be forgotten. They are silent most of the time."""
    x = torch.randn(count, dim)
    x[:, useful:] *= (torch.rand(count, 1) < 0.02).float()
    return x, x[:, :useful].sum(1).tanh()


def build(precision):
    model = Regressor()
    if precision == "bf16":
        model.to(torch.bfloat16)  # BORN
    return model


def train(precision, steps=400, lr=5e-3, decay=0.2):
    model = build(precision)
    with torch.no_grad():
        model.first.weight[:, 6:] *= 4
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    start = model.first.weight[:, 6:].float().norm().item()
    for _ in range(steps):
        x, y = data(128)
        dtype = model.first.weight.dtype
        loss = F.mse_loss(model(x.to(dtype)).float(), y)
        optimizer.zero_grad()
        loss.backward()
        with torch.no_grad():
            for p in model.parameters():
                p.mul_(1 - lr * decay)
        optimizer.step()
    return loss.item(), model.first.weight[:, 6:].float().norm().item() / start


loss, left = train("bf16")
print("loss", round(loss, 4), "left of the useless weights", round(left, 3), "decay alone would leave", round(0.999 ** 400, 3))
