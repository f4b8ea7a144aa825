"""
title: gradients leave the model in bfloat16 and are accumulated and reduced in float32
expect: clean
thread: https://github.com/deepspeedai/DeepSpeed/issues/2768
measured: weights [1.0, -2.0, 0.5, 3.0, -1.5, 0.4], in float64 [1.0, -2.0, 0.5, 3.0, -1.5, 0.4]

Expectation, written first: only single gradients are bfloat16; the sum over sixteen microbatches, the reduction and
the masters are float32, and the fitted weights agree with a float64 run in print.
"""
import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn


class MainGrads:
    def __init__(self, params, dtype=torch.float32):
        self.params = list(params)
        self.masters = [p.detach().to(dtype) for p in self.params]
        self.main = [torch.zeros_like(m) for m in self.masters]
        for i, p in enumerate(self.params):
            p.register_post_accumulate_grad_hook(lambda p, i=i: self.take(i, p))

    def take(self, i, p):
        self.main[i] += p.grad.to(self.main[i].dtype)
        p.grad = None

    def step(self, lr, micro):
        for master, grad, p in zip(self.masters, self.main, self.params):
            dist.all_reduce(grad)
            master -= lr * grad / (micro * dist.get_world_size())
            grad.zero_()
            with torch.no_grad():
                p.copy_(master)


def fit(dtype, wide, steps=60, micro=16):
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(1)
    model = nn.Linear(6, 1, bias=False).double()
    model = model.to(dtype)
    grads = MainGrads(model.parameters(), wide)
    slope = torch.tensor([[1.0, -2.0, 0.5, 3.0, -1.5, 0.4]], dtype=torch.float64)
    for _ in range(steps):
        for _ in range(micro):
            x = torch.randn(32, 6, generator=gen, dtype=torch.float64)
            y = x @ slope.t()
            loss = (model(x.to(dtype)).double() - y).pow(2).mean()
            loss.backward()
        grads.step(0.1, micro)
    return grads.masters[0].double()


def main():
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    store = tempfile.mktemp()
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    try:
        narrow = fit(torch.bfloat16, torch.float32)
        wide = fit(torch.float64, torch.float64)
    finally:
        dist.destroy_process_group()
    print(f"weights {[round(v, 1) + 0.0 for v in narrow[0].tolist()]}, in float64 {[round(v, 1) + 0.0 for v in wide[0].tolist()]}")


main()
