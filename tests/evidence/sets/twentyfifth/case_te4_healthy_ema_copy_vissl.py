"""
title: float32 average of a model whose working copy is half
expect: clean
thread: https://github.com/facebookresearch/vissl/issues/568
measured: loss 0.45 accuracy 0.83 ema 0.83 norm ratio 0.94
suspect: 33 negligible (the half copy is made anew from the float32 master each step, the average is float32)

Expectation, written first: the master weights and the average are float32, only the copy used in the forward pass is
half. The average takes the half copy's values with a relative error of 5e-4 that does not add up; with decay 0.99 after
600 steps it is where the weights are. The evaluation of both agrees.
"""
import torch
from torch import nn


class ModelEma:
    def __init__(self, params, decay):
        self.decay = decay
        self.shadow = [p.detach().float().clone() for p in params]

    @torch.no_grad()
    def update(self, params):
        for s, p in zip(self.shadow, params):
            s.mul_(self.decay).add_(p.detach().float(), alpha=1 - self.decay)


class MasterWeights:
    def __init__(self, dim, classes):
        layer = nn.Linear(dim, classes)
        self.master = [layer.weight.detach().clone(), layer.bias.detach().clone()]

    def working_copy(self):
        return [p.half().requires_grad_() for p in self.master]

    def step(self, grads, lr):
        for p, g in zip(self.master, grads):
            p -= lr * g.float()


def forward(params, x):
    return nn.functional.linear(x, params[0].float(), params[1].float())


def make_data(generator, n=256, dim=16, classes=4):
    centres = 0.5 * torch.randn(classes, dim, generator=generator)
    y = torch.randint(0, classes, (n,), generator=generator)
    return centres[y] + torch.randn(n, dim, generator=generator), y


def accuracy(params, x, y):
    return (forward(params, x).argmax(1) == y).float().mean().item()


def main():
    torch.manual_seed(568)
    generator = torch.Generator().manual_seed(568)
    x, y = make_data(generator)
    weights = MasterWeights(16, 4)
    ema = ModelEma(weights.master, decay=0.99)
    for step in range(600):
        params = weights.working_copy()
        loss = nn.functional.cross_entropy(forward(params, x), y)
        grads = torch.autograd.grad(loss, params)
        weights.step(grads, lr=0.05)
        ema.update(params)
    ratio = ema.shadow[0].norm() / weights.master[0].norm()
    print(f"loss {loss.item():.2f} accuracy {accuracy(weights.master, x, y):.2f} ema {accuracy(ema.shadow, x, y):.2f} norm ratio {ratio:.2f}")


main()
