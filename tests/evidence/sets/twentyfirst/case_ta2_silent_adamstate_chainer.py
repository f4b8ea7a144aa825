"""
title: Adam with fp16 moments takes enormous steps because the squares of small gradients underflow to zero
expect: silent:underflow|downcast
thread: https://github.com/chainer/chainer/pull/6442
measured: first step moved a weight by 0.50, settled after 300 steps: False
widened: first step moved a weight by 0.00, settled after 300 steps: True ; innocent: first step moved a weight by 0.50, settled after 300 steps: False
suspect: 46 precision (the forward pass multiplies in bf16, which costs per cents of a gradient, not its scale)

Expectation, written first: the optimizer keeps both moments in fp16; gradients of about 1e-4 have squares of 1e-8 which, times
1 - beta2, are below the smallest fp16 number, so v stays zero and the step is m / eps instead of about lr: the weights are thrown about
by half a unit at once and the fit never settles. The bf16 matmul in the model is only coarse.
"""
import torch
import torch.nn as nn


class AdamRule:
    def __init__(self, params, alpha=1e-3, beta1=0.9, beta2=0.999, eps=1e-7, state_dtype=None):
        self.params = list(params)
        self.alpha, self.beta1, self.beta2, self.eps = alpha, beta1, beta2, eps
        self.t = 0
        self.state = []
        for p in self.params:
            dtype = state_dtype or p.dtype
            self.state.append((torch.zeros_like(p, dtype=dtype), torch.zeros_like(p, dtype=dtype)))  # BORN

    @torch.no_grad()
    def update(self):
        self.t += 1
        lr = self.alpha * (1 - self.beta2 ** self.t) ** 0.5 / (1 - self.beta1 ** self.t)
        for p, (m, v) in zip(self.params, self.state):
            grad = p.grad.to(m.dtype)
            m += (1 - self.beta1) * (grad - m)
            v += (1 - self.beta2) * (grad * grad - v)  # BORN
            p -= (lr * m / (v.sqrt() + self.eps)).float()
            p.grad = None


class Regressor(nn.Module):
    def __init__(self, n_in):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(n_in))
        self.bias = nn.Parameter(torch.zeros(()))

    def forward(self, x):
        out = x.to(torch.bfloat16) @ self.weight.to(torch.bfloat16)
        return out.float() + self.bias


def make_data(n, n_in, unit):
    x = torch.randn(n, n_in)
    y = x @ torch.linspace(0.2, 0.8, n_in) + 0.1
    return x, y, unit


def main():
    torch.manual_seed(0)
    x, y, unit = make_data(512, 8, unit=2e-4)
    model = Regressor(8)
    optimizer = AdamRule(model.parameters(), alpha=5e-3, state_dtype=torch.float16)  # BORN
    jumps = []
    for step in range(300):
        before = model.weight.detach().clone()
        error = model(x) - y
        loss = unit * (error ** 2).mean()
        loss.backward()
        optimizer.update()
        jumps.append((model.weight.detach() - before).abs().max().item())
    with torch.no_grad():
        last = ((model(x) - y) ** 2).mean().item()
    print(f"first step moved a weight by {jumps[0]:.2f}, settled after 300 steps: {last < 0.05}")


if __name__ == "__main__":
    main()
