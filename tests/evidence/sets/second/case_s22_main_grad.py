"""
title: gradients of many micro-batches are summed in buffers of the parameters' bfloat16
expect: silent:lost-update|precision-loss|gradient-dtype
modes: diagnose

After deepspeedai/DeepSpeed#1800 and mlnomadpy/flaxchat#6 (zeros_like of the parameters). The masters are float32, but what
reaches them was summed over 512 micro-batches with 8 bits: the gradient's norm is 8 % too small, the
second loss 4 % too high (14.87, repaired 14.27). Right: float32 buffers.
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
        self.main_grad = [torch.zeros_like(p) for p in self.parameters]  # BORN
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
            grad = buffer.float() / self.number
            momentum.mul_(beta).add_(grad)
            master.sub_(momentum, alpha=lr)
            parameter.copy_(master)
        norm = torch.stack([b.float().square().sum() for b in self.main_grad]).sum().sqrt() / self.number
        for buffer in self.main_grad:
            buffer.zero_()
        self.number = 0
        return norm.item()


def micro_batch(n=4):
    x = torch.randn(n, 12) + 0.5
    y = x[:, :3].sum(-1, keepdim=True) + 3.0
    return x.to(torch.bfloat16), y


def main(updates=2, accumulate=512):
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
