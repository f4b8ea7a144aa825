"""
title: an orthogonalising optimizer keeps float32 second moments of updates that its iteration returns in bfloat16
expect: collision
thread: https://github.com/zichongli5/NorMuon/pull/10
fix_at: 16, 25, 31, 33, 34, 51

Expectation, written first: the Newton-Schulz iteration casts to bfloat16 and never casts back; the mean square of the
update is bfloat16 too, and lerp_ of the float32 buffer towards it is refused in the optimizer's step.
"""
import torch
from torch import nn


def zeropower_via_newtonschulz5(g, steps=5):
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g.bfloat16()  # BORN
    if g.size(-2) > g.size(-1):
        x = x.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        s = x @ x.mT
        x = a * x + (b * s + c * s @ s) @ x
    if g.size(-2) > g.size(-1):
        x = x.mT
    return x


def normuon_update(grad, momentum, second, beta=0.95, beta2=0.95):
    momentum.lerp_(grad, 1 - beta)
    update = grad.lerp(momentum, beta)
    update = zeropower_via_newtonschulz5(update)
    norm = update.norm(dim=(-2, -1), keepdim=True)
    v_mean = torch.mean(update * update, dim=-1, keepdim=True)
    second.lerp_(v_mean, 1 - beta2)  # COLLIDES
    update.mul_(second.rsqrt().clamp(max=1e4))
    update.mul_(norm / update.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-10))
    return update * max(1, grad.size(-2) / grad.size(-1)) ** 0.5


class NorMuon(torch.optim.Optimizer):
    def __init__(self, params, lr=0.02, weight_decay=0.0):
        super().__init__(params, dict(lr=lr, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["momentum"] = torch.zeros_like(p)
                    state["second"] = torch.zeros_like(p[..., 0:1])
                update = normuon_update(p.grad, state["momentum"], state["second"])
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(update, alpha=-group["lr"])


def main():
    torch.manual_seed(14)
    net = nn.Sequential(nn.Linear(12, 24, bias=False), nn.ReLU(), nn.Linear(24, 6, bias=False))
    teacher = torch.randn(12, 6)
    opt = NorMuon(net.parameters())
    for _ in range(40):
        x = torch.randn(64, 12)
        loss = (net(x) - torch.tanh(x @ teacher)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"loss {loss.item():.4f}")


main()
