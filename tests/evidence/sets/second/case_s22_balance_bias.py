"""
title: an aux-loss-free router's balancing bias was narrowed together with the model, so it stops moving
expect: silent:lost-update|precision-loss|downcast
modes: diagnose

After NVIDIA/Megatron-LM#1482 and NVIDIA-NeMo/Automodel#2419 (the correction bias must stay float32). The bias is nudged by 0.0005 a
step; beyond 0.25 that is less than half a step of bfloat16, so the bias of the overloaded experts freezes at -0.25 where -0.36 is
needed: the busiest expert keeps 2.0 times its share (repaired: 1.2 times). Right: the buffer stays in float32.
"""
import torch
from torch import nn

torch.manual_seed(27)


class Router(nn.Module):
    def __init__(self, dim, experts, top, rate=5e-4):
        super().__init__()
        self.top, self.rate = top, rate
        self.gate = nn.Linear(dim, experts, bias=False)
        self.register_buffer("bias", torch.zeros(experts))
        self.register_buffer("load", torch.zeros(experts, dtype=torch.int64), persistent=False)

    def forward(self, tokens):
        scores = torch.sigmoid(nn.functional.linear(tokens.float(), self.gate.weight.float()))
        index = (scores + self.bias.float()).topk(self.top, dim=-1).indices
        weight = scores.gather(1, index)
        self.load += torch.bincount(index.flatten(), minlength=len(self.load))
        return weight / weight.sum(-1, keepdim=True), index

    @torch.no_grad()
    def balance(self):
        load = self.load.float()
        self.bias += self.rate * torch.sign(load.mean() - load)
        self.load.zero_()
        return (load.max() / load.mean()).item()


class Moe(nn.Module):
    def __init__(self, dim=8, experts=4, top=1):
        super().__init__()
        self.router = Router(dim, experts, top)
        self.scale = nn.Parameter(torch.ones(experts))

    def forward(self, x):
        weight, index = self.router(x)
        return x * (weight.to(x.dtype) * self.scale[index]).sum(-1, keepdim=True)


def main(steps=1000):
    model = Moe()
    with torch.no_grad():
        model.router.gate.weight.mul_(0.3)
        model.router.gate.weight[0] += 0.25
        model.router.gate.weight[3] -= 0.25
    model = model.to(torch.bfloat16).eval()  # BORN
    history = []
    with torch.no_grad():
        for step in range(1, steps + 1):
            model((1 + 0.5 * torch.randn(128, 8)).to(torch.bfloat16))
            history.append(model.router.balance())
            if step % 250 == 0:
                bias = [round(b, 3) for b in model.router.bias.tolist()]
                print(step, "busiest", round(sum(history[-50:]) / 50, 2), "bias", bias)


main()
