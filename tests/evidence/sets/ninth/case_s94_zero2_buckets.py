"""
title: bf16 autocast forward with gradients accumulated in bf16 buckets
expect: silent:lost-update|precision-loss
thread: https://github.com/deepspeedai/DeepSpeed/issues/2352
measured: accumulated gradient norm over exact: 0.509
widened: accumulated gradient norm over exact: 1.000
fix_at: 21

Expectation, written first: the buckets are bf16 and receive 1024 small contributions;
additions stop once the bucket is 256 times as large as one of them. The forward is
bf16 as well through autocast; switching autocast off alone does not bring the gradient
back.
"""
import torch
from torch import nn


class Bucket:
    def __init__(self, params, dtype):
        self.params = params
        self.flat = torch.zeros(sum(p.numel() for p in params), dtype=dtype)

    def collect(self, scale):
        flat = torch.cat([p.grad.flatten() for p in self.params])
        self.flat += (flat * scale).to(self.flat.dtype)
        for p in self.params:
            p.grad = None

    def norm(self):
        return self.flat.double().norm().item()


def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))


def stream(n, gen):
    for _ in range(n):
        x = torch.randn(4, 8, generator=gen)
        yield x, 3 + x[:, :1]


def accumulate(model, bucket, micro, amp):
    gen = torch.Generator().manual_seed(1)
    for x, y in stream(micro, gen):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=amp):
            out = model(x)
        loss = (out.float() - y).pow(2).mean()
        loss.backward()
        bucket.collect(1.0 / micro)


def exact_norm(micro):
    model = build().double()
    gen = torch.Generator().manual_seed(1)
    x, y = (torch.cat(part).double() for part in zip(*stream(micro, gen)))
    (model(x) - y).pow(2).mean().backward()
    return torch.cat([p.grad.flatten() for p in model.parameters()]).norm().item()


micro = 1024
model = build()
bucket = Bucket(list(model.parameters()), dtype=torch.bfloat16)  # BORN
accumulate(model, bucket, micro, amp=True)
print(f"accumulated gradient norm over exact: {bucket.norm() / exact_norm(micro):.3f}")
