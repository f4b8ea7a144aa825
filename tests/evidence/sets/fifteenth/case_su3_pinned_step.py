"""
title: an Adam keeps its step counter in float32 although the default dtype of the run is bfloat16
expect: clean
thread: https://github.com/pytorch/ao/pull/4915
measured: steps 400, loss 0.07613, weights [-0.9932, -0.6015, -0.1947, 0.2012, 0.6016, 0.9982]
float64: steps 400, loss 0.07613, weights [-0.9932, -0.6015, -0.1947, 0.2012, 0.6016, 0.9982] (default dtype, counter, weights and moments in float64)

Expectation, written first: a counter of the default dtype would stand still at 256; this one is pinned, weights and
moments are float32 and bfloat16 is only the type of the inputs. 400 steps are counted and the fit is the wide one.
"""
import torch
from torch import nn

DEFAULT, STATE = torch.bfloat16, torch.float32


class PinnedAdam(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-2, betas=(0.9, 0.999), eps=1e-8):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps))

    def _new(self, p):
        return {"step": torch.zeros((), dtype=STATE), "m": torch.zeros_like(p), "v": torch.zeros_like(p)}

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                state = self.state[p] or self.state[p].update(self._new(p)) or self.state[p]
                state["step"] += 1
                state["m"].lerp_(p.grad, 1 - b1)
                state["v"].mul_(b2).addcmul_(p.grad, p.grad, value=1 - b2)
                first = 1 - b1 ** state["step"].item()
                second = 1 - b2 ** state["step"].item()
                denom = (state["v"] / second).sqrt_().add_(group["eps"])
                p.addcdiv_(state["m"], denom, value=-group["lr"] / first)


class Regressor(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(features, dtype=STATE))
        self.bias = nn.Parameter(torch.zeros((), dtype=STATE))

    def forward(self, x):
        return x.to(self.weight.dtype) @ self.weight + self.bias


class Demand:
    """integer counts and levels: bfloat16 holds them exactly"""

    def __init__(self, rows, features, seed):
        gen = torch.Generator().manual_seed(seed)
        self.x = torch.randint(-4, 5, (rows, features), generator=gen).to(torch.get_default_dtype())
        truth = torch.linspace(-1, 1, features, dtype=torch.float64)
        noise = torch.randn(rows, generator=gen, dtype=torch.float64)
        self.y = (self.x.double() @ truth + 0.5 + 0.3 * noise).to(STATE)


def fit(model, data, steps):
    optimizer = PinnedAdam(model.parameters())
    for _ in range(steps):
        loss = (model(data.x) - data.y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item(), int(optimizer.state[model.weight]["step"])


def main():
    torch.set_default_dtype(DEFAULT)
    model = Regressor(6)
    loss, steps = fit(model, Demand(256, 6, seed=9), 400)
    print(f"steps {steps}, loss {loss:.5f}, weights", [round(w, 4) for w in model.weight.tolist()])


main()
