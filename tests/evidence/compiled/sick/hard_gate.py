"""A mixture of two branches switched by a bfloat16 score: compiled, the backward switches other elements.

kind: saved-not-used
thread: pytorch/pytorch#151352
"""

import torch
from torch import nn

torch.set_num_threads(1)


class Switch(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.project = nn.Linear(width, width, bias=False)
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x, value):
        score = torch.tanh(x + self.bias) * 8  # KEPT
        step = score.round()  # LINE
        return self.project(score), torch.where(step % 2 == 0, value, 0.0)


def measure(compiled, dtype):
    torch.manual_seed(0)
    model = Switch().bfloat16().to(dtype)
    x = torch.randn(256, 32).bfloat16().to(dtype)
    value = torch.randn(256, 32).bfloat16().to(dtype).requires_grad_()
    mixed, out = (torch.compile(model) if compiled else model)(x, value)
    (out.float().sum() + mixed.float().square().mean()).backward()
    return ((value.grad != 0) != (out != 0)).double().mean().item()


DTYPE, HEALTHY, SICK = torch.bfloat16, 1e-3, 2e-3
print(f"compiled: share of elements that are on in only one of forward and backward {measure(True, DTYPE):.4f}")
