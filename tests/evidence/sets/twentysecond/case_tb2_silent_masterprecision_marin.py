"""
title: with bfloat16 master weights late training updates are rounded away and the loss stops falling
expect: silent:lost-update|precision-loss|downcast
thread: https://github.com/marin-community/marin/issues/6486
measured: loss first 23.7 last 14.8 | weights that moved: up 21%, down 19%
widened: loss first 23.7 last 0.8 | weights that moved: up 100%, down 100%; innocent: loss first 23.7 last 14.9 | weights that moved: up 21%, down 19%
suspect: line 40 - innocent: the compute cast only rounds the activations, it does not keep the weights from moving

Expectation, written first: the precision policy stores the parameters in bfloat16 and the step is added to them in
that type. With a learning rate of 5e-4 an update of a weight near 1 is below half a step of 2**-7 and is lost, so
most weights never move. With params=float32 and compute=bfloat16 the same run learns.
"""
from dataclasses import dataclass

import torch
import torch.nn.functional as F


@dataclass
class Policy:
    params: torch.dtype = torch.float32
    compute: torch.dtype = torch.float32

    @classmethod
    def from_string(cls, text):
        names = {"f32": torch.float32, "bf16": torch.bfloat16}
        parts = dict(item.split("=") for item in text.split(","))
        return cls(params=names[parts["params"]], compute=names[parts["compute"]])


def init_params(policy, dim, hidden, gen):
    params = {
        "up": torch.randn(hidden, dim, generator=gen) * 0.8,
        "down": torch.randn(1, hidden, generator=gen) * 0.8,
    }
    return {k: v.to(policy.params).requires_grad_(True) for k, v in params.items()}  # BORN


def apply_model(params, x, policy):
    x = x.to(policy.compute)
    hidden = torch.tanh(F.linear(x, params["up"].to(x.dtype)))
    return F.linear(hidden, params["down"].to(x.dtype)).float()


class Adam:
    def __init__(self, params, lr=5e-4, betas=(0.9, 0.99), eps=1e-8):
        self.params, self.lr, self.betas, self.eps = params, lr, betas, eps
        self.mu = {k: torch.zeros_like(p, dtype=torch.float32) for k, p in params.items()}
        self.nu = {k: torch.zeros_like(p, dtype=torch.float32) for k, p in params.items()}
        self.count = 0

    @torch.no_grad()
    def step(self):
        self.count += 1
        b1, b2 = self.betas
        for k, p in self.params.items():
            g = p.grad.float()
            self.mu[k].mul_(b1).add_(g, alpha=1 - b1)
            self.nu[k].mul_(b2).addcmul_(g, g, value=1 - b2)
            mu_hat = self.mu[k] / (1 - b1 ** self.count)
            nu_hat = self.nu[k] / (1 - b2 ** self.count)
            p.add_(-self.lr * mu_hat / (nu_hat.sqrt() + self.eps))  # BORN
            p.grad = None


def main(steps=800):
    gen = torch.Generator().manual_seed(6)
    policy = Policy.from_string("params=bf16,compute=bf16")  # BORN
    params = init_params(policy, 8, 32, gen)
    start = {k: p.detach().clone() for k, p in params.items()}
    optimizer = Adam(params)
    x = torch.randn(256, 8, generator=gen)
    y = x[:, :1] - 0.5 * x[:, 1:2]
    losses = []
    for _ in range(steps):
        loss = F.mse_loss(apply_model(params, x, policy), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    moved = [f"{k} {(p.detach() != start[k]).float().mean():.0%}" for k, p in params.items()]
    print(f"loss first {losses[0]:.1f} last {losses[-1]:.1f}")
    print("weights that moved:", ", ".join(moved))


if __name__ == "__main__":
    main()
