"""
title: float32 weights are told to hold bfloat16 gradients; over 1024 microbatches the small ones are lost
expect: silent:gradient-dtype|lost-update|precision-loss|downcast
modes: diagnose

pytorch#191918 (grad_dtype), mlnomadpy/flaxchat#6, DeepSpeed#1800. The sum grows until a contribution is less than half of its step.
Measured: Gradient norm 6.06 instead of 9.27.
BORN is the assignment of grad_dtype. Change: leave it out (float32 accumulation).
"""
import torch
import torch.nn.functional as F
from torch import nn


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(8, 16), nn.Linear(16, 1)

    def forward(self, x):
        return self.outer(torch.tanh(self.inner(x))).squeeze(-1)


def lean_gradients(model, dtype=torch.bfloat16):
    """Half the memory for gradients."""
    for parameter in model.parameters():
        parameter.grad_dtype = dtype  # BORN
    return model


def accumulate(model, stream, micro):
    for x, y in stream:
        loss = F.mse_loss(model(x), y) / micro
        loss.backward()


torch.manual_seed(0)
model = lean_gradients(Head())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
stream = [(torch.randn(2, 8) + 0.5, torch.ones(2) * 3) for _ in range(1024)]
accumulate(model, stream, len(stream))
norm = float(sum(p.grad.float().square().sum() for p in model.parameters()).sqrt())
optimizer.step()
print("gradient", model.outer.weight.grad.dtype, "norm", round(norm, 4))
