"""
title: a finetune with a small rate keeps its weights in bfloat16; the logits are bfloat16 too
expect: silent:lost-update|precision-loss|downcast
thread: https://github.com/meta-pytorch/torchtune/issues/2254
measured: loss 2.53 before, 2.49 after finetuning
widened: loss 2.53 before, 1.87 after finetuning

Expectation, written first: steps of 5e-5 on weights near a tenth are below half of a
bfloat16 step, most are lost and the loss stays. Casting the logits to bfloat16 before the
loss is a rounding of the loss; float32 logits change nothing.
"""
import torch
from torch import nn


class Classifier(nn.Module):
    def __init__(self, dim=32, classes=10):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(classes, dim))

    def forward(self, x):
        return nn.functional.linear(x, self.weight.float())


def pretrained(dtype):
    gen = torch.Generator().manual_seed(0)
    model = Classifier()
    sign = torch.randint(0, 2, model.weight.shape, generator=gen) * 2 - 1
    model.weight.data = sign * (0.1 + 0.02 * torch.rand(model.weight.shape, generator=gen))
    return model.to(dtype)  # BORN


class SignSGD:
    def __init__(self, params, lr):
        self.params, self.lr = list(params), lr

    @torch.no_grad()
    def step(self, grads):
        for p, g in zip(self.params, grads):
            p.add_(g.sign().to(p.dtype), alpha=-self.lr)


def task(gen, mix, n=128):
    x = torch.randn(n, 32, generator=gen)
    return x, (x @ mix).argmax(-1)


def main(steps=2500):
    gen = torch.Generator().manual_seed(1)
    mix = torch.randn(32, 10, generator=gen)
    model = pretrained(torch.bfloat16)  # BORN
    opt = SignSGD(model.parameters(), lr=5e-5)
    first = last = None
    for _ in range(steps):
        x, y = task(gen, mix)
        logits = model(x).to(torch.bfloat16)
        loss = nn.functional.cross_entropy(logits.float(), y)
        opt.step(torch.autograd.grad(loss, list(model.parameters())))
        last = loss.item()
        first = first or last
    x, y = task(torch.Generator().manual_seed(5), mix, 4000)
    held = nn.functional.cross_entropy(model(x).detach(), y).item()
    print(f"loss {first:.2f} before, {held:.2f} after finetuning")


main()
