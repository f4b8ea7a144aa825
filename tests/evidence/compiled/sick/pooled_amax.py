"""A set encoder in float16 that pools with amax: compiled, no row of the set equals the pooled one.

kind: kept-wide-discontinuous
thread: pytorch/pytorch#186799
"""

import torch
from torch import nn

torch.set_num_threads(1)


class SetEncoder(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(width) + 0.5)
        self.shift = nn.Parameter(torch.rand(width))
        self.across = nn.Linear(width, width)

    def forward(self, x):
        features = x * self.scale + self.shift  # KEPT
        pooled = features.amax(dim=1, keepdim=True)  # LINE
        return features + self.across(pooled)


def gradients(compiled, dtype):
    torch.manual_seed(0)
    model, x = SetEncoder().half().to(dtype), torch.randn(8, 10, 16).half().to(dtype)
    (torch.compile(model) if compiled else model)(x).float().square().mean().backward()
    return torch.cat([p.grad.flatten().double() for p in model.parameters()])


def measure(compiled, dtype):
    return (~gradients(compiled, dtype).isfinite()).double().mean().item()


DTYPE, HEALTHY, SICK = torch.float16, 0.0, 0.05
print(f"compiled: share of gradients that are not finite {measure(True, DTYPE):.4f}")
