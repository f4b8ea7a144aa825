"""A bfloat16 score that switches off what is near zero and also feeds a layer: compiled, the backward switches otherwise.

kind: saved-not-used
thread: pytorch/pytorch#150859
"""

import torch
from torch import nn

torch.set_num_threads(1)


class DeadZone(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.slope = nn.Parameter(torch.rand(width) + 0.5)
        self.mix = nn.Linear(width, width, bias=False)

    def forward(self, x, value):
        score = torch.tanh(x * self.slope) * 20  # KEPT
        live = score.abs() > 7.5  # LINE
        return self.mix(score), torch.where(live, value, 0.0)


def measure(compiled, dtype):
    torch.manual_seed(0)
    model = DeadZone().bfloat16().to(dtype)
    x = torch.randn(512, 64).bfloat16().to(dtype)
    value = torch.ones(512, 64).to(dtype).requires_grad_()
    mixed, out = (torch.compile(model) if compiled else model)(x, value)
    (out.float().sum() + mixed.float().square().mean()).backward()
    return ((value.grad != 0) != (out != 0)).double().mean().item()


DTYPE, HEALTHY, SICK = torch.bfloat16, 0.0, 2e-4
print(f"compiled: share of values that are live in only one of forward and backward {measure(True, DTYPE):.5f}")
