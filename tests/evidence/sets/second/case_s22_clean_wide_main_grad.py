"""
title: gradients of many micro-batches of a bfloat16 model are summed in float32 buffers
expect: clean
modes: diagnose

The healthy twin of case_s22_main_grad.
"""
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(26)


class Net(nn.Module):
    def __init__(self, inp=12, hidden=16):
        super().__init__()
        self.first = nn.Linear(inp, hidden)
        self.second = nn.Linear(hidden, 1)

    def forward(self, x):
        return self.second(F.gelu(self.first(x)))


class Accumulator:
    """The optimizer's view: main_grad collects, the float32 masters are stepped."""

    def __init__(self, parameters):
        self.parameters = list(parameters)
        self.masters = [p.detach().float().clone() for p in self.parameters]
        self.main_grad = [torch.zeros_like(m) for m in self.masters]
        self.momentum = [torch.zeros_like(m) for m in self.masters]
        self.number = 0

    def collect(self):
        for buffer, parameter in zip(self.main_grad, self.parameters):
            buffer += parameter.grad
            parameter.grad = None
        self.number += 1

    @torch.no_grad()
    def step(self, lr=0.05, beta=0.9):
        for parameter, master, momentum, buffer in zip(self.parameters, self.masters, self.momentum, self.main_grad):
            grad = buffer / self.number
            momentum.mul_(beta).add_(grad)
            master.sub_(momentum, alpha=lr)
            parameter.copy_(master)
        norm = torch.stack([b.square().sum() for b in self.main_grad]).sum().sqrt() / self.number
        for buffer in self.main_grad:
            buffer.zero_()
        self.number = 0
        return norm.item()


def micro_batch(n=4):
    x = torch.randn(n, 12) + 0.5
    y = x[:, :3].sum(-1, keepdim=True) + 3.0
    return x.to(torch.bfloat16), y


def main(updates=2, accumulate=128):
    model = Net().to(torch.bfloat16)
    accumulator = Accumulator(model.parameters())
    for update in range(updates):
        total = 0.0
        for _ in range(accumulate):
            x, y = micro_batch()
            loss = F.mse_loss(model(x).float(), y)
            loss.backward()
            accumulator.collect()
            total += loss.item()
        print(update, "loss", round(total / accumulate, 4), "norm", round(accumulator.step(), 4))


main()
