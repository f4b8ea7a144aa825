"""A straight-through one-hot choice in bfloat16, by comparison with the largest weight: compiled, nothing is chosen.

kind: kept-wide-discontinuous
thread: pytorch/pytorch#195223
"""

import torch
from torch import nn

torch.set_num_threads(1)


class Choice(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, logits):
        soft = torch.softmax(logits + self.bias, dim=-1)  # KEPT
        hard = (soft == soft.amax(-1, keepdim=True)).to(soft.dtype)  # LINE
        return hard - soft.detach() + soft, hard


def measure(compiled, dtype):
    torch.manual_seed(0)
    model, logits = Choice().bfloat16().to(dtype), torch.randn(256, 24).bfloat16().to(dtype)
    with torch.no_grad():
        _, hard = (torch.compile(model) if compiled else model)(logits)
    return (hard.sum(-1) == 0).double().mean().item()


DTYPE, HEALTHY, SICK = torch.bfloat16, 0.0, 0.5
print(f"compiled: share of rows in which nothing is chosen {measure(True, DTYPE):.4f}")
