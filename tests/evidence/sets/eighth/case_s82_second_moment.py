"""
title: fine-tuning with an Adam whose state is kept small
expect: silent:underflow|overflow|downcast
thread: https://github.com/afiaka87/glide-finetune/issues/5
measured: final loss nan, finite weights 0 of 8
widened: final loss 5.17e-08, finite weights 8 of 8

Expectation, written first: the squares of gradients near 1e-4 are 1e-8, which is zero
in float16, and so is the guard eps; the step divides by zero and the parameters become nan.
BORN is the dtype of the second moment; float32 trains normally.
"""
import torch
from torch import nn


class SmallStateAdam(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-2, betas=(0.9, 0.99), eps=1e-8):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["m"] = torch.zeros_like(p)
                    state["v"] = torch.zeros_like(p, dtype=torch.float16)  # BORN
                    state["t"] = 0
                state["t"] += 1
                m, v = state["m"], state["v"]
                m.mul_(b1).add_(p.grad, alpha=1 - b1)
                v.mul_(b2).add_(p.grad * p.grad * (1 - b2))
                root = (v / (1 - b2 ** state["t"])).sqrt() + group["eps"]
                p.sub_(group["lr"] * (m / (1 - b1 ** state["t"])) / root)


class Adapter(nn.Module):
    """A frozen base with a small trainable head whose output is scaled down."""

    def __init__(self, width=8):
        super().__init__()
        self.base = nn.Linear(width, width).requires_grad_(False)
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        return 1e-2 * self.head(torch.tanh(self.base(x))).squeeze(1)


def main():
    torch.manual_seed(0)
    x = torch.randn(256, 8)
    model = Adapter()
    target = 1e-2 * torch.tanh(model.base(x)).sum(1).detach()
    opt = SmallStateAdam(model.head.parameters())
    for step in range(300):
        loss = nn.functional.mse_loss(model(x), target)
        opt.zero_grad()
        loss.backward()
        opt.step()
    weight = model.head.weight.detach()
    print("final loss %.3g, finite weights %d of %d"
          % (loss.item(), int(weight.isfinite().sum()), weight.numel()))


if __name__ == "__main__":
    main()
