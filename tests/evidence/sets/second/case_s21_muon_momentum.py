"""
title: a Muon-like optimizer makes its momentum buffer in the default dtype and lerps it towards bfloat16 gradients
expect: collision

After lucidrains/ema-pytorch#36 ("expected dtype float for `end` but got dtype c10::BFloat16"): lerp_ does not promote. Right: one dtype for buffer and gradient; either the
buffer follows the gradient, or the gradient is widened before the lerp.
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(8)


def orthogonalise(matrix, steps=4):
    a, b, c = 3.4445, -4.7750, 2.0315
    x = matrix / (matrix.norm() + 1e-7)
    tall = x.shape[0] > x.shape[1]
    if tall:
        x = x.t()
    for _ in range(steps):
        gram = x @ x.t()
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.t() if tall else x


class Muon(torch.optim.Optimizer):
    def __init__(self, parameters, lr=0.02, beta=0.9):
        super().__init__(parameters, dict(lr=lr, beta=beta))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                grad = parameter.grad
                if grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["step"] = 0
                    state["momentum"] = torch.zeros(parameter.shape)  # BORN
                state["step"] += 1
                momentum = state["momentum"]
                momentum.lerp_(grad, 1 - group["beta"])  # COLLIDES
                update = orthogonalise(momentum)
                scale = max(1.0, parameter.shape[0] / parameter.shape[1]) ** 0.5
                parameter.add_(update.to(parameter.dtype), alpha=-group["lr"] * scale)


class Net(nn.Module):
    def __init__(self, dim=16, classes=4):
        super().__init__()
        self.inp = nn.Linear(dim, 2 * dim, bias=False)
        self.mid = nn.Linear(2 * dim, 2 * dim, bias=False)
        self.out = nn.Linear(2 * dim, classes, bias=False)

    def forward(self, x):
        return self.out(F.relu(self.mid(F.relu(self.inp(x)))))


def main():
    model = Net().to(torch.bfloat16)
    optimizer = Muon(model.parameters())
    centres = torch.randn(4, 16)
    for step in range(5):
        labels = torch.randint(0, 4, (32,))
        x = (centres[labels] + 0.3 * torch.randn(32, 16)).to(torch.bfloat16)
        loss = F.cross_entropy(model(x).float(), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, round(loss.item(), 3))


main()
