"""A head kept in float32 under float16 autocast: compiled, its backward is in float16 and overflows.

kind: autocast-backward
thread: pytorch/pytorch#179804
"""

import torch
from torch import nn

torch.set_num_threads(1)


class Head(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.body = nn.Linear(width, width)
        self.head = nn.Linear(width, 4)

    def forward(self, x):
        hidden = self.body(x).relu()
        with torch.autocast("cpu", enabled=False):
            return self.head(hidden.float())  # LINE


def measure(compiled, dtype):
    torch.manual_seed(0)
    model, x = Head().to(dtype), torch.randn(64, 32).to(dtype)
    forward = torch.compile(model) if compiled else model
    with torch.autocast("cpu", dtype=torch.float16, enabled=dtype == torch.float32):
        loss = forward(x).square().sum() * 3e4
    loss.backward()
    return (~model.head.weight.grad.isfinite()).double().mean().item()


DTYPE, HEALTHY, SICK = torch.float32, 0.0, 0.5
print(f"compiled: share of the head's gradient that is not finite {measure(True, DTYPE):.4f}")
