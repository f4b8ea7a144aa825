"""
title: AdamW on bfloat16 weights with a Kahan compensation buffer
expect: clean
thread: https://github.com/warner-benjamin/optimi/issues/7
measured: travelled 0.0245 loss 0.78
suspect: 53 compensated: what the bfloat16 addition drops is kept in the Kahan buffer and added later

Expectation, written first: the weights are bfloat16 and each step of 2e-4 is smaller than their spacing, so a plain
addition would lose it. The optimizer adds the step to a compensation buffer, adds the buffer to the weight, and
puts the part that did not fit back. Over 200 steps weight plus buffer travel as in the float32 run to within
bfloat16's accuracy.
"""
import torch
import torch.nn as nn
from torch.optim.optimizer import Optimizer

PARAM_DTYPE = torch.bfloat16


class AdamW(Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.99), eps=1e-6, kahan_sum=None):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, kahan_sum=kahan_sum))

    def _init_state(self, group, p):
        state = self.state[p]
        if len(state) == 0:
            state["step"] = 0
            state["exp_avg"] = torch.zeros_like(p, dtype=torch.float32)
            state["exp_avg_sq"] = torch.zeros_like(p, dtype=torch.float32)
            kahan = group["kahan_sum"]
            use = kahan if kahan is not None else p.dtype in (torch.float16, torch.bfloat16)
            state["kahan_comp"] = torch.zeros_like(p) if use else None
        return state

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                state = self._init_state(group, p)
                state["step"] += 1
                grad = p.grad.float()
                state["exp_avg"].lerp_(grad, 1 - beta1)
                state["exp_avg_sq"].lerp_(grad.square(), 1 - beta2)
                denom = (state["exp_avg_sq"] / (1 - beta2 ** state["step"])).sqrt_().add_(group["eps"])
                update = state["exp_avg"] / (1 - beta1 ** state["step"]) / denom * -group["lr"]
                comp = state["kahan_comp"]
                if comp is None:
                    p.add_(update)
                else:
                    comp.add_(update)
                    previous = p.clone()
                    p.add_(comp)
                    comp.add_(previous.sub_(p))


def full_weight(optimizer, p):
    comp = optimizer.state[p]["kahan_comp"]
    return p.detach().float() if comp is None else p.detach().float() + comp.float()


if __name__ == "__main__":
    torch.manual_seed(0)
    model = nn.Linear(24, 12, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.randn(12, 24).sign() * (1.0 + 0.5 * torch.rand(12, 24)))
        target = model.weight.bfloat16().float() + 0.2 * torch.randn(12, 24)
    model.to(PARAM_DTYPE)
    start = model.weight.detach().float().clone()
    optimizer = AdamW(model.parameters(), lr=2e-4)
    for _ in range(200):
        x = torch.randn(64, 24)
        loss = (model(x.to(PARAM_DTYPE)).float() - x @ target.T).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    moved = full_weight(optimizer, model.weight) - start
    print("travelled", f"{moved.abs().mean().item():.4f}", "loss", f"{loss.item():.2f}")
