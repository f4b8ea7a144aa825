"""
title: tensors saved for the backward pass are packed to eight bits without a scale
expect: silent:underflow|round-trip|precision-loss
thread: https://github.com/inclusionAI/AReno/pull/538
measured: unexplained 101.0% of the target
widened: unexplained 0.0% of the target

Expectation, written first: signals are a few ten-thousandths and float8 knows nothing between zero and
two thousandths; the forward pass is exact, but the gradients are mostly lost.
"""
import torch
from torch import nn


class PackedTensors:
    """context that keeps large saved tensors in few bits"""

    def __init__(self, dtype=torch.float8_e4m3fn, smallest=1024):
        self.dtype, self.smallest = dtype, smallest

    def pack(self, t):
        if t.is_floating_point() and t.numel() >= self.smallest and not isinstance(t, nn.Parameter):
            return t.dtype, t.to(self.dtype)  # BORN
        return None, t

    def unpack(self, packed):
        dtype, t = packed
        return t if dtype is None else t.to(dtype)

    def __enter__(self):
        self.hooks = torch.autograd.graph.saved_tensors_hooks(self.pack, self.unpack)
        return self.hooks.__enter__()

    def __exit__(self, *exc):
        return self.hooks.__exit__(*exc)


class Gate(nn.Module):
    """a residual branch on small signals"""

    def __init__(self, dim):
        super().__init__()
        self.proj = nn.Linear(dim, dim, bias=False)

    def forward(self, x):
        return x + torch.tanh(self.proj(x))


class Regressor(nn.Module):
    def __init__(self, dim=16, depth=3):
        super().__init__()
        self.gates = nn.ModuleList(Gate(dim) for _ in range(depth))
        self.out = nn.Linear(dim, 1, bias=False)

    def forward(self, x):
        for gate in self.gates:
            x = gate(x)
        return 2500 * self.out(x)


def train(steps=150):
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(1)
    model = Regressor()
    opt = torch.optim.SGD(model.parameters(), 0.02)
    mix = torch.randn(16, 1, generator=gen)
    for _ in range(steps):
        x = 1.6e-4 * torch.randn(128, 16, generator=gen)
        with PackedTensors():
            loss = (model(x) - 2500 * x @ mix).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item(), (2500 * x @ mix).pow(2).mean().item()


loss, power = train()
print(f"unexplained {100 * loss / power:.1f}% of the target")
