"""
title: an orthogonalising optimizer keeps a second moment per neuron
expect: collision
thread: https://github.com/zichongli5/NorMuon/issues/7
fix_at: 17, 19, 26, 32, 34, 35

Expectation, written first: the Newton-Schulz iteration works in bfloat16 and hands its result back as bfloat16; the
mean square of that is mixed into a float32 moment with lerp_, which wants both of one dtype.
"""
import torch
import torch.nn.functional as F
from torch import nn


def zeropower_via_newtonschulz5(G, steps=5):
    a, b, c = 3.4445, -4.7750, 2.0315
    X = G.bfloat16()  # BORN
    if G.size(-2) > G.size(-1):
        X = X.mT
    X = X / (X.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        A = X @ X.mT
        X = a * X + (b * A + c * A @ A) @ X
    if G.size(-2) > G.size(-1):
        X = X.mT
    return X


def normuon_update(grad, momentum, second_momentum, beta=0.95, beta2=0.95):
    momentum.lerp_(grad, 1 - beta)
    update = grad.lerp(momentum, beta)
    update = zeropower_via_newtonschulz5(update)
    norm = update.norm(dim=(-2, -1), keepdim=True)
    v_mean = torch.mean(update * update, dim=-1, keepdim=True)
    second_momentum.lerp_(v_mean, 1 - beta2)  # COLLIDES
    update = update * second_momentum.sqrt().add(1e-10).reciprocal()
    update = update * (norm / (update.norm(dim=(-2, -1), keepdim=True) + 1e-10))
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
                    state["momentum_buffer"] = torch.zeros_like(p)
                    state["second_momentum_buffer"] = torch.zeros_like(p[..., 0:1])
                update = normuon_update(p.grad, state["momentum_buffer"], state["second_momentum_buffer"])
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(update, alpha=-group["lr"])


class Regressor(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.inp, self.hidden, self.out = nn.Linear(8, width), nn.Linear(width, width), nn.Linear(width, 1)

    def forward(self, x):
        return self.out(F.gelu(self.hidden(F.gelu(self.inp(x))))).squeeze(-1)


def main():
    torch.manual_seed(0)
    net = Regressor()
    matrices = [p for p in net.parameters() if p.ndim == 2]
    rest = [p for p in net.parameters() if p.ndim < 2]
    opts = [NorMuon(matrices), torch.optim.AdamW(rest, lr=1e-2)]
    x = torch.randn(256, 8)
    y = x[:, 0] * x[:, 1] + 0.5 * x[:, 2]
    for _ in range(40):
        loss = F.mse_loss(net(x), y)
        net.zero_grad()
        loss.backward()
        for opt in opts:
            opt.step()
    print(f"loss {loss.item():.4f}")


main()
