"""
title: Home-made AdamW counts its steps in the parameter's bfloat16
expect: silent:lost-update|precision-loss|downcast
thread: https://github.com/pytorch/pytorch/pull/75214
measured: steps counted = 256 of 1000, learning rate = 0.003125 (wanted 0.001581)
widened: steps counted = 1000 of 1000, learning rate = 0.001581 (wanted 0.001581)

Expectation, written first.  The optimizer keeps `step` as a tensor of the
parameter's dtype.  In bfloat16 256 + 1 is 256, so the counter stops and with
it the inverse-square-root schedule and the bias correction that are computed
from it: after 1000 steps the learning rate is still that of step 256.  BORN is
the line that creates the step tensor; float32 there mends it.
"""
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class RsqrtAdamW(torch.optim.Optimizer):
    def __init__(self, params, lr=0.05, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["step"] = torch.zeros((), dtype=p.dtype)  # BORN
                    state["exp_avg"] = torch.zeros_like(p, dtype=torch.float32)
                    state["exp_avg_sq"] = torch.zeros_like(p, dtype=torch.float32)
                state["step"] += 1
                t = state["step"].item()
                g = p.grad.float()
                state["exp_avg"].lerp_(g, 1 - b1)
                state["exp_avg_sq"].mul_(b2).addcmul_(g, g, value=1 - b2)
                m = state["exp_avg"] / (1 - b1 ** t)
                v = state["exp_avg_sq"] / (1 - b2 ** t)
                self.rate = group["lr"] / t ** 0.5
                p.copy_(p.float() * (1 - self.rate * group["weight_decay"]) - self.rate * m / (v.sqrt() + group["eps"]))


def main(steps=1000):
    model = nn.Linear(6, 1).to(torch.bfloat16)
    optimizer = RsqrtAdamW(model.parameters())
    w = torch.randn(6, 1)
    for _ in range(steps):
        x = torch.randn(16, 6)
        y = x @ w + 0.3 * torch.randn(16, 1)
        loss = nn.functional.mse_loss(model(x.to(torch.bfloat16)).float(), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    counted = optimizer.state[model.weight]["step"].item()
    print(f"steps counted = {counted:.0f} of {steps}, learning rate = {optimizer.rate:.6f} (wanted {0.05 / steps ** 0.5:.6f})")


if __name__ == "__main__":
    main()
