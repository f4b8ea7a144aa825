"""A Huber loss of a bfloat16 prediction and a float16 target: compiled, it is float32 and not bfloat16.

kind: other-dtype
thread: pytorch/pytorch#197098
"""

import torch
from torch import nn

torch.set_num_threads(1)


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.value = nn.Linear(16, 1)
        self.loss = nn.HuberLoss(reduction="none")

    def forward(self, x, target):
        return self.loss(self.value(x), target)  # LINE


def measure(compiled, dtype):
    torch.manual_seed(0)
    model = Critic().to(dtype)
    loss = (torch.compile(model) if compiled else model)(torch.randn(8, 16).to(dtype), torch.randn(8, 1).half())
    return (loss.dtype != dtype) * 1.0


DTYPE, HEALTHY, SICK = torch.bfloat16, 0.0, 0.5
print(f"compiled: the loss has another dtype {measure(True, DTYPE):.0f}")
