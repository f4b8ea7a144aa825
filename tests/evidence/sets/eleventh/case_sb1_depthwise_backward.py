"""
title: a depthwise convolution with its own backward meets autocast
expect: collision
thread: https://github.com/gungui98/Pytorch-Depthwise-Conv3d/issues/3
fix_at: 18, 20, 24

Expectation, written first: autocast converts the operands inside the forward, so the gradient arrives in bfloat16;
the backward runs without autocast and pairs it with the float32 weight that was saved.
"""
import torch
import torch.nn.functional as F
from torch import nn


class DepthwiseConv1dFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, padding):
        ctx.save_for_backward(x, weight)
        ctx.padding = padding
        return F.conv1d(x, weight, padding=padding, groups=x.shape[1])  # BORN

    @staticmethod
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors
        channels = x.shape[1]
        grad_x = F.conv_transpose1d(grad_output, weight, padding=ctx.padding, groups=channels)  # COLLIDES
        windows = F.pad(x, (ctx.padding,) * 2).unfold(2, weight.shape[2], 1)
        grad_w = torch.einsum("bcl,bclk->ck", grad_output, windows)
        return grad_x, grad_w[:, None], None


class DepthwiseConv1d(nn.Module):
    def __init__(self, channels, kernel=5):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(channels, 1, kernel) / kernel)
        self.padding = kernel // 2

    def forward(self, x):
        return DepthwiseConv1dFunction.apply(x, self.weight, self.padding)


class GestureNet(nn.Module):
    def __init__(self, channels=6, hidden=12, classes=3):
        super().__init__()
        self.mix = nn.Conv1d(channels, hidden, 1)
        self.depthwise = DepthwiseConv1d(hidden)
        self.head = nn.Linear(hidden, classes)

    def forward(self, x):
        return self.head(self.depthwise(self.mix(x).relu().float()).mean(-1))


def train(steps=3):
    torch.manual_seed(0)
    model = GestureNet()
    opt = torch.optim.SGD(model.parameters(), 0.05)
    x, y = torch.randn(8, 6, 40), torch.randint(0, 3, (8,))
    for _ in range(steps):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = model(x)
        loss = F.cross_entropy(out.float(), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


print(f"{train():.3f}")
