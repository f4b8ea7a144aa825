"""
title: NovoGrad on half precision weights, with a head that gets no gradient in the first steps
expect: silent:underflow|downcast
thread: https://github.com/google-deepmind/optax/issues/1789
measured: error of the depth 0.00, of the normals nan
widened: error of the depth 0.00, of the normals 0.01

Expectation, written first: eps = 1e-8 is zero in float16, and a layer whose gradient is exactly zero gets 0 / 0; its
weights are NaN from then on, while the loss of the other task goes on falling. The targets are rounded to bfloat16 on
the way in, which is not to be seen.
"""
import torch
from torch import nn


class NovoGrad(torch.optim.Optimizer):
    def __init__(self, params, lr=0.02, betas=(0.9, 0.5), eps=1e-8):  # BORN
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                state = self.state[p]
                norm = p.grad.square().sum()
                if not state:
                    state["v"], state["m"] = norm.clone(), torch.zeros_like(p)
                else:
                    state["v"].mul_(b2).add_(norm, alpha=1 - b2)
                denom = state["v"].sqrt() + group["eps"]  # BORN
                state["m"].mul_(b1).add_(p.grad / denom, alpha=1 - b1)
                p.add_(state["m"], alpha=-group["lr"])


class TwoTasks(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.depth = nn.Linear(width, 1, bias=False)
        self.normal = nn.Linear(width, 3, bias=False)

    def forward(self, x):
        return self.depth(x), self.normal(x)


def batches(n, gen):
    truth = torch.randn(4, 8, generator=gen) / 8**0.5
    for k in range(n):
        x = torch.randn(64, 8, generator=gen)
        y = x @ truth.T
        has_normals = k >= 3  # the first files have no normal maps
        yield x, y.to(torch.bfloat16).float(), has_normals


def main():
    torch.manual_seed(0)
    model = TwoTasks().half()  # BORN
    optimizer = NovoGrad(model.parameters())
    errors = []
    for x, y, has_normals in batches(100, torch.Generator().manual_seed(4)):
        depth, normal = model(x.to(model.depth.weight.dtype))
        first = (depth.float() - y[:, :1]).square().mean()
        second = (normal.float() - y[:, 1:]).square().mean()
        loss = first + (second if has_normals else 0 * normal.float().sum())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        errors.append((first.item(), second.item()))
    first, second = errors[-1]
    print(f"error of the depth {first:.2f}, of the normals {second:.2f}")


main()
