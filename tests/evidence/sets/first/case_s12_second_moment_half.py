"""
title: an optimizer saves memory with float16 states: squares of gradients near 1e-5 are zero and steps explode
expect: silent:underflow
modes: diagnose

keras-team/keras-hub#2629 (v_t in 16 bits), Nerogar/OneTrainer#1005. v = 0.001 * g*g of about 1e-13 is below float16's smallest 6e-8; the
step becomes lr * m / eps.
Measured: Loss 1.2e-4 -> 354, a weight of 934; with float32 states 1.21e-4 and 0.32.
BORN is the factory of the second moment; equally right is the write into it. Change: float32 (the first moment may stay).
"""
import torch
import torch.nn.functional as F
from torch import nn


class LeanAdam(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, state_dtype=torch.float16):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, state_dtype=state_dtype))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            low, high = group["betas"]
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["step"] = 0
                    state["m"] = torch.zeros_like(p)
                    state["v"] = torch.zeros_like(p, dtype=group["state_dtype"])  # BORN
                state["step"] += 1
                state["m"].mul_(low).add_(p.grad, alpha=1 - low)
                fresh = high * state["v"].float() + (1 - high) * p.grad.square()
                state["v"].copy_(fresh)  # BORN
                root = (state["v"].float() / (1 - high ** state["step"])).sqrt() + group["eps"]
                p.add_(state["m"] / (1 - low ** state["step"]) / root, alpha=-group["lr"])


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 2))
optimizer = LeanAdam(model.parameters(), lr=1e-3)
x, y = torch.randn(64, 10), torch.randn(64, 2)
losses = []
for _ in range(6):
    loss = F.mse_loss(model(x), y) * 1e-4  # one of many weighted terms
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(float(loss.detach()))
print("loss", losses[0], "->", losses[-1], "largest weight", float(max(p.detach().abs().max() for p in model.parameters())))
