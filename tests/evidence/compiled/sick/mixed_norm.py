"""A float32 stream through a layer norm whose weights are bfloat16: eager refuses it, compiled code runs.

kind: accepted-mismatch
thread: pytorch/pytorch#151478
"""

import torch
from torch import nn

torch.set_num_threads(1)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(16).bfloat16()
        self.project = nn.Linear(16, 16)

    def forward(self, x):
        return self.project(self.norm(x))  # LINE


def measure(compiled, dtype):
    torch.manual_seed(0)
    model = Block()
    try:
        (torch.compile(model) if compiled else model)(torch.randn(4, 16))
    except RuntimeError:
        return 0.0
    return 1.0


DTYPE, HEALTHY, SICK = torch.float32, 0.0, 0.5
print(f"compiled: accepts what eager refuses {measure(True, DTYPE):.0f}")
