"""
title: the running statistics of a slow batch norm are bfloat16 with the rest of the model and soon stand still
expect: silent:lost-update|precision-loss|downcast

After https://github.com/pytorch/pytorch/issues/70901 and https://github.com/NVIDIA/apex/pull/137.
Right: batch norms stay float32, with their statistics.
"""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(216)


class Net(nn.Module):
    def __init__(self, momentum=0.002, width=12):
        super().__init__()
        self.norm = nn.BatchNorm1d(4, momentum=momentum)
        self.first, self.second = nn.Conv1d(4, width, 5, padding=2), nn.Conv1d(width, width, 5, padding=2, stride=2)
        self.out = nn.Linear(width, 3)

    def forward(self, x):
        x = F.relu(self.first(self.norm(x)))
        return self.out(F.relu(self.second(x)).mean(-1))


def readings(count, length=32):
    """Three machines, told apart by the frequency; sensors with an offset of their own."""
    label = torch.randint(0, 3, (count,))
    rate = torch.tensor([0.3, 0.6, 1.2])[label][:, None, None]
    wave = torch.sin(rate * torch.arange(length) + 6.28 * torch.rand(count, 4, 1)) + 0.3 * torch.randn(count, 4, length)
    return 2.5 * wave + torch.tensor([3.0, -2.0, 4.0, -3.0])[:, None], label


def prepare(model, dtype):
    return model.to(dtype)  # BORN


def train(dtype=torch.bfloat16, steps=900):
    model = prepare(Net(), dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for _ in range(steps):
        x, label = readings(24)
        loss = F.cross_entropy(model(x.to(dtype)).float(), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


@torch.no_grad()
def report(model, dtype=torch.bfloat16):
    x, label = readings(300)
    score = lambda: (model(x.to(dtype)).argmax(-1) == label).float().mean().item()
    here = model.train() and x.mean((0, 2))
    means, variances = model.norm.running_mean.float(), model.norm.running_var.float()
    evaluated = model.eval() and score()
    print("means", [round(m, 2) for m in means.tolist()], "truth", [round(m, 2) for m in here.tolist()],
          "variance", round(variances.mean().item(), 2), "truth", round(x.var((0, 2)).mean().item(), 2), "accuracy", round(evaluated, 3))


report(train())
