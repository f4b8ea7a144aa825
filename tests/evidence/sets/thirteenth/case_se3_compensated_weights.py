"""
title: pure bfloat16 weights are trained with a compensated update
expect: clean
thread: https://github.com/pytorch/torchdistx/pull/52
measured: error 0.47 (float32 weights: error 0.47)

Expectation, written first: single updates are smaller than the rounding step of the weights, but what each rounding
drops is kept in a second buffer and added again; the error reached is that of float32 weights.
"""
import torch
import torch.nn.functional as F
from torch import nn

WEIGHTS = torch.bfloat16


class AnyPrecisionAdamW(torch.optim.Optimizer):
    """moments in float32, weights in their own dtype with Kahan summation"""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.99), eps=1e-8):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["step"] = 0
                    state["exp_avg"] = torch.zeros_like(p, dtype=torch.float32)
                    state["exp_avg_sq"] = torch.zeros_like(p, dtype=torch.float32)
                    state["compensation"] = torch.zeros_like(p)
                state["step"] += 1
                grad = p.grad.float()
                m, v = state["exp_avg"].lerp_(grad, 1 - beta1), state["exp_avg_sq"]
                v.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
                denom = (v / (1 - beta2 ** state["step"])).sqrt().add_(group["eps"])
                update = -group["lr"] / (1 - beta1 ** state["step"]) * m / denom
                self.kahan_add(p, state["compensation"], update)

    @staticmethod
    def kahan_add(p, compensation, update):
        compensation.add_(update.to(p.dtype))
        before = p.detach().clone()
        p.add_(compensation)
        compensation.add_(before.sub_(p))


class Net(nn.Module):
    def __init__(self, dim=10, width=32):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(dim, width), nn.Linear(width, width), nn.Linear(width, 1)

    def forward(self, x):
        return self.fc3(F.gelu(self.fc2(F.gelu(self.fc1(x))))).squeeze(-1)


def target(x):
    return torch.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2]


def main():
    torch.manual_seed(0)
    net = Net().to(WEIGHTS)
    opt = AnyPrecisionAdamW(net.parameters(), lr=5e-4)
    gen = torch.Generator().manual_seed(1)
    for _ in range(500):
        x = torch.randn(128, 10, generator=gen)
        loss = F.mse_loss(net(x.to(WEIGHTS)).float(), target(x))
        opt.zero_grad()
        loss.backward()
        opt.step()
    x = torch.randn(4096, 10, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        print(f"error {F.mse_loss(net(x.to(WEIGHTS)).float(), target(x)).item():.2f}")


main()
