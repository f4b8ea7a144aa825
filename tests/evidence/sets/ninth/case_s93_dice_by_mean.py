"""
title: dice loss of half masks written with means so nothing leaves the range
expect: clean
thread: https://github.com/ultralytics/ultralytics/pull/24554
measured: dice loss after training: half network 0.3707, float32 0.3706

Expectation, written first: sums over 512x512 pixels would overflow half, the loss takes
means of float32 products instead and only the network is half; the value and the
training agree with float32.
"""
import torch
from torch import nn


class MaskHead(nn.Module):
    def __init__(self, width=6):
        super().__init__()
        self.enc = nn.Conv2d(2, width, 3, padding=1)
        self.dec = nn.Conv2d(width, 1, 1)

    def forward(self, x):
        return self.dec(torch.relu(self.enc(x)))


def dice_loss(logits, target, eps=1e-6):
    p = torch.sigmoid(logits.float())
    inter = (p * target).mean(dim=(1, 2, 3))
    size = p.mean(dim=(1, 2, 3)) + target.mean(dim=(1, 2, 3))
    return (1 - (2 * inter + eps) / (size + eps)).mean()


def scenes(n, size=256, seed=0):
    gen = torch.Generator().manual_seed(seed)
    grid = torch.linspace(-1, 1, size)
    for _ in range(n):
        r = 0.4 + 0.5 * torch.rand(1, generator=gen)
        mask = ((grid[:, None] ** 2 + grid[None] ** 2) < r ** 2).float()[None, None]
        noise = 0.4 * torch.randn(1, 2, size, size, generator=gen)
        yield torch.cat([mask, 1 - mask], 1) + noise, mask


def train(dtype, steps=8, lr=1.0):
    torch.manual_seed(0)
    net = MaskHead()
    master = list(net.parameters())
    values = []
    for image, mask in scenes(steps):
        with torch.autocast("cpu", dtype=torch.float16, enabled=dtype == torch.float16):
            logits = net(image)
        loss = dice_loss(logits, mask)
        grads = torch.autograd.grad(loss * 4096, master)
        with torch.no_grad():
            for p, g in zip(master, grads):
                p -= lr * g / 4096
        values.append(loss.item())
    return values[-1]


print(f"dice loss after training: half network {train(torch.float16):.4f}, float32 {train(torch.float32):.4f}")
