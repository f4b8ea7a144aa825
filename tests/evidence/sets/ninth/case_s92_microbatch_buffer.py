"""
title: 1024 micro-batches accumulated in a bf16 gradient buffer
expect: silent:lost-update|precision-loss
thread: https://github.com/deepspeedai/DeepSpeed/issues/1800
measured: largest remaining error of the gains: 1.0000
widened: largest remaining error of the gains: 0.3732
fix_at: 20

Expectation, written first: each contribution is 1/1024 of the gradient; once the
buffer is 256 times as large as the next contribution, adding does nothing, so about a
quarter of the gradient arrives and the fit stays far behind.
"""
import torch
from torch import nn


class GradBuffer:
    def __init__(self, params, dtype):
        self.params = list(params)
        self.data = [torch.zeros(p.shape, dtype=dtype) for p in self.params]

    def accumulate(self, scale):
        for buf, p in zip(self.data, self.params):
            buf += (p.grad * scale).to(buf.dtype)
            p.grad = None

    def flush(self, optimizer):
        for buf, p in zip(self.data, self.params):
            p.grad = buf.to(p.dtype).clone()
            buf.zero_()
        optimizer.step()
        optimizer.zero_grad()


class Calibrator(nn.Module):
    def __init__(self, n=6):
        super().__init__()
        self.gain = nn.Parameter(torch.zeros(n))

    def forward(self, x):
        return x * self.gain


def run(accum=1024, updates=2, comm_dtype=torch.bfloat16):  # BORN
    torch.manual_seed(0)
    truth = torch.linspace(0.5, 1.5, 6)
    model = Calibrator()
    opt = torch.optim.SGD(model.parameters(), lr=0.5)
    buffer = GradBuffer(model.parameters(), comm_dtype)
    for update in range(updates):
        for micro in range(accum):
            x = 1.0 + 0.05 * torch.randn(2, 6)
            loss = 0.5 * (model(x) - truth * x).pow(2).mean(0).sum()
            loss.backward()
            buffer.accumulate(1.0 / accum)
        buffer.flush(opt)
    return (model.gain.detach() - truth).abs().max().item()


print(f"largest remaining error of the gains: {run():.4f}")
