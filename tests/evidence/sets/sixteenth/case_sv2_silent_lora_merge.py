"""
title: a trained adapter is merged into the bfloat16 base and the merged model is served
expect: silent:lost-update|precision-loss|downcast
thread: https://github.com/OpenBMB/MiniCPM-V/issues/502
measured: error with the adapter mounted 0.0003, merged 0.0012
widened: error with the adapter mounted 0.0003, merged 0.0000

Expectation, written first: the adapter moves each weight by less than half a step of bfloat16 and the sum is mostly
the old weight. While it is mounted the bfloat16 base is no trouble, its product is rounded once. The direction
of the task is int8, it holds only signs.
"""
import torch
from peft import LoraConfig, get_peft_model
from torch import nn


class Scorer(nn.Module):
    def __init__(self, dim, out):
        super().__init__()
        self.proj = nn.Linear(dim, out, bias=False)

    def forward(self, x):
        return self.proj(x)


class Task:
    """the base answers are right but for one direction of the input"""

    def __init__(self, base, dim, out, shift):
        self.weight = base.proj.weight.detach().float().clone()
        self.lean = torch.randn(dim).sign().to(torch.int8)
        self.answer = shift * torch.randn(out).sign()
        self.dim = dim

    def draw(self, n):
        x = (torch.randn(n, self.dim) + self.lean.float()).to(torch.bfloat16)
        y = x.float() @ (self.weight + torch.outer(self.answer, self.lean.float())).T
        return x, y


def train(model, task, steps=200):
    params = [p for p in model.parameters() if p.requires_grad]
    opt = torch.optim.Adam(params, lr=3e-3)
    for k in range(steps):
        for group in opt.param_groups:
            group["lr"] = 3e-3 * (1 - k / steps)
        x, y = task.draw(64)
        loss = (model(x).float() - y).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()


def main():
    torch.manual_seed(21)
    base = Scorer(256, 64)
    nn.init.normal_(base.proj.weight, std=0.3)
    base = base.to(torch.bfloat16)  # BORN
    task = Task(base, 256, 64, shift=2e-4)
    config = LoraConfig(r=4, lora_alpha=4, target_modules=["proj"], init_lora_weights=True)
    model = get_peft_model(base, config)
    train(model, task)
    x, y = task.draw(1000)
    with torch.no_grad():
        mounted = (model(x).float() - y).square().mean()
        merged = model.merge_and_unload()  # BORN
        served = (merged(x.to(merged.proj.weight.dtype)).float() - y).square().mean()
    print(f"error with the adapter mounted {mounted:.4f}, merged {served:.4f}")


main()
