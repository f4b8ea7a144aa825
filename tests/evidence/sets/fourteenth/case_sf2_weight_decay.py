"""
title: AdamW with float32 arithmetic on bfloat16 weights, and a decoupled weight decay made in place
expect: silent:lost-update|precision-loss
thread: https://github.com/Nerogar/OneTrainer/issues/996
measured: norm of the unused columns after 200 steps: 100.0% of the start
widened: norm of the unused columns after 200 steps: 81.9% of the start

Expectation, written first: the decay multiplies the weight by 1 - lr * wd = 0.999, and bfloat16 rounds that product
back to the weight; the norm stands still where nothing else pulls. The first moment is kept in bfloat16 too, but the
gradient is zero on these columns and the moment with it.
"""
import torch
from torch import nn


class AdamWBf16(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-2, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.1):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state.update({"step": 0, "exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p, dtype=torch.float32)})
                state["step"] += 1
                grad = p.grad.float()
                first = state["exp_avg"].float().lerp_(grad, 1 - b1)
                state["exp_avg"].copy_(first)
                state["exp_avg_sq"].mul_(b2).addcmul_(grad, grad, value=1 - b2)
                p.data.mul_(1 - group["lr"] * group["weight_decay"])  # BORN
                scale = (state["exp_avg_sq"] / (1 - b2 ** state["step"])).sqrt_().add_(group["eps"])
                update = first / (1 - b1 ** state["step"]) / scale
                p.data.copy_((p.data.float() - group["lr"] * update))


def tied(seed):
    torch.manual_seed(seed)
    return nn.Linear(32, 8, bias=False).to(torch.bfloat16)  # BORN


def batches(n):
    for i in range(n):
        g = torch.Generator().manual_seed(i)
        x = torch.randn(64, 32, generator=g)
        x[:, 16:] = 0  # features that this data set never has
        yield x, x[:, :8] * 0.5


def main():
    model = tied(0)
    optimizer = AdamWBf16(model.parameters())
    unused = model.weight.detach()[:, 16:].float().norm().item()
    for x, y in batches(200):
        loss = (nn.functional.linear(x, model.weight.float()) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    left = model.weight.detach()[:, 16:].float().norm().item()
    print(f"norm of the unused columns after 200 steps: {100 * left / unused:.1f}% of the start")


main()
