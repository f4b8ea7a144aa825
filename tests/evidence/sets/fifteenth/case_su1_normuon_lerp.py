"""
title: a Muon variant keeps its second moment in float32 while the orthogonalised update comes back in bfloat16
expect: collision
thread: https://github.com/zichongli5/NorMuon/issues/7
fix_at: 16, 25, 30, 46, 47, 56

Expectation, written first: the Newton-Schulz iteration works in bfloat16 and returns what it worked in; the mean
square of the update is bfloat16 too, and `lerp_` on the float32 second moment refuses another dtype for its end.
"""
import torch
from torch import nn


def newton_schulz(G, steps=5, eps=1e-7):
    a, b, c = 3.4445, -4.7750, 2.0315
    X = G.bfloat16()  # BORN
    flipped = G.size(-2) > G.size(-1)
    if flipped:
        X = X.mT
    X = X / (X.norm(dim=(-2, -1), keepdim=True) + eps)
    for _ in range(steps):
        A = X @ X.mT
        B = b * A + c * A @ A
        X = a * X + B @ X
    return X.mT if flipped else X


def muon_direction(grad, momentum, beta):
    momentum.lerp_(grad, 1 - beta)
    return newton_schulz(grad.lerp(momentum, beta))


class NorMuon(torch.optim.Optimizer):
    def __init__(self, params, lr=0.02, beta=0.95, beta2=0.95):
        super().__init__(params, dict(lr=lr, beta=beta, beta2=beta2))

    def _state(self, p):
        state = self.state[p]
        if not state:
            state["momentum"] = torch.zeros_like(p)
            state["second"] = torch.zeros_like(p[..., :1])
        return state

    @staticmethod
    def normalise(update, second, beta2):
        v_mean = update.square().mean(-1, keepdim=True)
        second.lerp_(v_mean, 1 - beta2)  # COLLIDES
        scaled = update / (second.sqrt() + 1e-8)
        return scaled * (update.norm() / scaled.norm())

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self._state(p)
                update = muon_direction(p.grad, state["momentum"], group["beta"])
                update = self.normalise(update, state["second"], group["beta2"])
                p.add_(update, alpha=-group["lr"] * max(1, p.size(0) / p.size(1)) ** 0.5)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)).square())


def main():
    torch.manual_seed(0)
    model = nn.Sequential(Block(16), Block(16))
    optimizer = NorMuon(model.parameters())
    x = torch.randn(32, 16)
    for step in range(4):
        loss = (model(x) - x.roll(1, -1)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print(f"loss {loss.item():.4f}")


main()
