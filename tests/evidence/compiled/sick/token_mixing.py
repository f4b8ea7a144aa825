"""A mixing of tokens kept in float32 under float16 autocast, by einsum: compiled, its backward is in float16 and overflows.

kind: autocast-backward
thread: pytorch/pytorch#153044
"""

import torch
from torch import nn

torch.set_num_threads(1)


class Mixer(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.body = nn.Linear(width, width)
        self.weights = nn.Parameter(torch.randn(32, 32) / 6)

    def forward(self, x):
        hidden = self.body(x)
        with torch.autocast("cpu", enabled=False):
            return torch.einsum("bnc,nm->bmc", hidden.float(), self.weights)  # LINE


def measure(compiled, dtype):
    torch.manual_seed(0)
    model, x = Mixer().to(dtype), torch.randn(8, 32, 16).to(dtype)
    forward = torch.compile(model) if compiled else model
    with torch.autocast("cpu", dtype=torch.float16, enabled=dtype == torch.float32):
        loss = forward(x).square().sum() * 1e4
    loss.backward()
    return (~model.weights.grad.isfinite()).double().mean().item()


DTYPE, HEALTHY, SICK = torch.float32, 0.0, 0.5
print(f"compiled: share of the gradient that is not finite {measure(True, DTYPE):.4f}")
