"""
title: the balancing bias of a router goes to bfloat16 with its module
expect: silent:lost-update|precision-loss|downcast
thread: https://github.com/NVIDIA/Megatron-LM/issues/1482
measured: busiest expert 5.1 times the mean load
widened: busiest expert 1.0 times the mean load

Expectation, written first: the bias moves by 0.0001 a step; from 0.03 on half a step of bfloat16 is larger and the
bias of the crowded experts stands still. The hidden states are bfloat16 too and change no choice that counts.
"""
import torch
from torch import nn


class Router(nn.Module):
    def __init__(self, dim, experts, topk):
        super().__init__()
        self.topk = topk
        self.gate = nn.Linear(dim, experts, bias=False)
        self.register_buffer("expert_bias", torch.zeros(experts))

    def forward(self, x):
        scores = torch.sigmoid(nn.functional.linear(x.float(), self.gate.weight.float()))
        return (scores + self.expert_bias.float()).topk(self.topk, -1).indices


class Balancer:
    """pushes the bias of each expert towards an even load"""

    def __init__(self, router, rate=1e-4):
        self.router, self.rate = router, rate

    def update(self, chosen):
        bias = self.router.expert_bias
        load = torch.bincount(chosen.flatten(), minlength=len(bias)).float()
        bias.add_(self.rate * (load.mean() - load).sign().to(bias.dtype))
        return load


class Float16Module(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module.to(torch.bfloat16)  # BORN

    def forward(self, x):
        return self.module(x)


def tokens(n, lean, gen):
    return torch.randn(n, len(lean), generator=gen) * 0.6 + lean


def main():
    gen = torch.Generator().manual_seed(11)
    torch.manual_seed(11)
    router = Router(dim=32, experts=16, topk=2)
    lean = router.gate.weight.detach()[:4].sum(0) * 4.0  # most tokens look alike
    model, balancer = Float16Module(router), Balancer(router)
    loads = []
    for step in range(4000):
        hidden = tokens(256, lean, gen).to(torch.bfloat16)
        loads.append(balancer.update(model(hidden)))
    last = torch.stack(loads[-200:]).sum(0)
    print(f"busiest expert {last.max() / last.mean():.1f} times the mean load")


main()
