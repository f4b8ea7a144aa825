"""
title: spiking GRU cell turned to double builds its default hidden state as float32
expect: collision
thread: https://github.com/fangwei123456/spikingjelly/issues/656
fix_at: 66

Expectation, written first: the cell is converted with .double() and called without a state; the default state is
made with dtype=torch.float, and the recurrent linear layer then multiplies a float state with double weights. The
state must take the dtype of the input (or of the weights).
"""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class ATanSurrogate(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, alpha):
        ctx.save_for_backward(x)
        ctx.alpha = alpha
        return (x >= 0).to(x)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return ctx.alpha / 2 / (1 + (math.pi / 2 * ctx.alpha * x).pow(2)) * grad_output, None


class SpikingGRUCell(nn.Module):
    def __init__(self, input_size, hidden_size, bias=True, alpha=2.0):
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.alpha = alpha
        self.linear_ih = nn.Linear(input_size, 3 * hidden_size, bias=bias)
        self.linear_hh = nn.Linear(hidden_size, 3 * hidden_size, bias=bias)
        bound = math.sqrt(1 / hidden_size)
        for p in self.parameters():
            nn.init.uniform_(p, -bound, bound)

    def spike(self, x):
        return ATanSurrogate.apply(x, self.alpha)

    def forward(self, x, hc=None):
        if hc is None:
            h = torch.zeros([x.shape[0], self.hidden_size], dtype=torch.float, device=x.device)  # BORN
        else:
            h = hc
        y_ih = torch.split(self.linear_ih(x), self.hidden_size, dim=1)
        y_hh = torch.split(self.linear_hh(h), self.hidden_size, dim=1)  # COLLIDES
        r = self.spike(y_ih[0] + y_hh[0])
        z = self.spike(y_ih[1] + y_hh[1])
        n = self.spike(y_ih[2] + r * y_hh[2])
        return (1.0 - z) * n + z * h


class SpikingClassifier(nn.Module):
    def __init__(self, input_size, hidden_size, num_classes):
        super().__init__()
        self.cell = SpikingGRUCell(input_size, hidden_size)
        self.fc = nn.Linear(hidden_size, num_classes)

    def forward(self, x):
        h, rate = None, 0.0
        for t in range(x.shape[0]):
            h = self.cell(x[t], h)
            rate = rate + h
        return self.fc(rate / x.shape[0])


if __name__ == "__main__":
    torch.manual_seed(7)
    net = SpikingClassifier(12, 16, 3).double()
    spikes = (torch.rand(10, 4, 12) > 0.6).double()
    label = torch.tensor([0, 2, 1, 0])
    loss = F.cross_entropy(net(spikes), label)
    loss.backward()
    print("loss", f"{loss.item():.6f}", "grad", f"{net.cell.linear_ih.weight.grad.norm().item():.6f}")
