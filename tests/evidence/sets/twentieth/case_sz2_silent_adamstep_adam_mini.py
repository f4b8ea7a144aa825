"""
title: Adam-mini on pure bfloat16 weights: the steps are smaller than half a unit of the weights and nothing moves
expect: silent:lost-update|downcast|precision-loss
thread: https://github.com/zyushun/Adam-mini/issues/26
measured: loss 7.011 -> 7.011, weights that moved 0
widened: loss 7.007 -> 5.548, weights that moved 1056
innocent: loss 7.011 -> 7.011, weights that moved 0
suspect: 32 exact (the counter only reaches 60, and it is read out as a Python number)

Expectation, written first: the model is cast to bfloat16 and the optimizer adds its update in place to those weights; a step of 1e-4 on a weight of
one tenth and more is under half a bfloat16 step (2^-12 at 0.1) and is rounded away, so the loss stays where it was. The step counter of the
optimizer is float16, which looks dangerous for the bias correction, but 60 is exact there.
"""
import torch
from torch import nn


class AdamMini(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-4, betas=(0.9, 0.95), eps=1e-8):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                grad = p.grad.float()
                if not state:
                    state["step"] = torch.zeros((), dtype=torch.float16)
                    state["m"] = torch.zeros_like(p, dtype=torch.float32)
                    state["vmean"] = torch.zeros(p.shape[0], *[1] * (p.dim() - 1))
                state["step"] += 1
                step = state["step"].item()
                state["m"].lerp_(grad, 1 - beta1)
                block = (grad * grad).flatten(1).mean(1).view_as(state["vmean"])
                state["vmean"].lerp_(block, 1 - beta2)
                denom = (state["vmean"] / (1 - beta2 ** step)).sqrt() + group["eps"]
                update = state["m"] / (1 - beta1 ** step) / denom
                p.add_(update.to(p.dtype), alpha=-group["lr"])  # BORN


class Regressor(nn.Module):
    def __init__(self, dim=32, hidden=32):
        super().__init__()
        self.fc1 = nn.Linear(dim, hidden, bias=False)
        self.fc2 = nn.Linear(hidden, 1, bias=False)

    def forward(self, x):
        return self.fc2(torch.relu(self.fc1(x)))


def main():
    torch.manual_seed(0)
    model = Regressor()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(p.sign() * (0.2 + 0.2 * torch.rand_like(p)))
    model = model.to(torch.bfloat16)  # BORN
    before = [p.detach().clone() for p in model.parameters()]
    opt = AdamMini(model.parameters())
    x = torch.randn(32, 32)
    y = x[:, :1] * 2 + x[:, 1:2]
    losses = []
    for _ in range(60):
        pred = model(x.to(model.fc1.weight.dtype)).float()
        loss = (pred - y).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    moved = sum(int((p != b).sum()) for p, b in zip(model.parameters(), before))
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}, weights that moved {moved}")


main()
