"""
title: Linear layer with float8 operands and per-tensor scales from an amax history
expect: clean
thread: https://github.com/meta-pytorch/float8_experimental/pull/31

Expectation, written first.  Nothing is wrong.  Both operands are divided by
their amax-derived scale and saturated before the cast to e4m3, multiplied,
and scaled back; the product is accumulated in float32.  Without the scales the
small weights would vanish; with them the relative error is the three to four
per cent that three mantissa bits give, and the training goes down.
"""
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
F8, F8_MAX = torch.float8_e4m3fn, torch.finfo(torch.float8_e4m3fn).max


def to_float8(x, amax):
    scale = F8_MAX / amax.clamp(min=1e-12)
    return (x * scale).clamp(-F8_MAX, F8_MAX).to(F8), scale


class Float8Matmul(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, amax_x, amax_w):
        x8, sx = to_float8(x, amax_x)
        w8, sw = to_float8(w, amax_w)
        ctx.save_for_backward(x, w)
        return (x8.float() @ w8.float().T) / (sx * sw)

    @staticmethod
    def backward(ctx, grad):
        x, w = ctx.saved_tensors
        return grad @ w, grad.T @ x, None, None


class Float8Linear(nn.Linear):
    def __init__(self, *args, history=8, **kwargs):
        super().__init__(*args, **kwargs)
        self.register_buffer("amax_history", torch.zeros(2, history))

    def forward(self, x):
        with torch.no_grad():
            self.amax_history.copy_(self.amax_history.roll(1, 1))
            self.amax_history[0, 0] = x.abs().max()
            self.amax_history[1, 0] = self.weight.abs().max()
        amax = self.amax_history.amax(1)
        return Float8Matmul.apply(x, self.weight, amax[0], amax[1]) + self.bias


def main(steps=60):
    model = nn.Sequential(Float8Linear(16, 64), nn.ReLU(), Float8Linear(64, 3))
    with torch.no_grad():
        model[2].weight.mul_(1e-3)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    w = torch.randn(16, 3)
    first = None
    for _ in range(steps):
        x = torch.randn(128, 16)
        loss = nn.functional.cross_entropy(model(x), (x @ w).argmax(1))
        first = first or loss.item()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    x = torch.randn(256, 16)
    with torch.no_grad():
        exact = nn.functional.linear(x, model[0].weight, model[0].bias)
        error = ((model[0](x) - exact).norm() / exact.norm()).item()
    print(f"loss {first:.3f} -> {loss.item():.3f}, relative error of the float8 layer {error:.3f}")


if __name__ == "__main__":
    main()
