"""
title: min-SNR weights taken in the weight dtype of a half trainer with near zero terminal SNR
expect: silent:underflow|overflow
thread: https://github.com/huggingface/diffusers/pull/5096
measured: losses: [nan, nan, nan, nan]
widened: losses: [0.9865, 0.9664, 0.9407, 1.0302]

Expectation, written first: the last SNRs are about 1e-9 and become zero in half, so
min(snr, gamma) / snr is 0/0 and the weighted loss is NaN. The prediction is half as
well and harmless; computing it in float32 alone leaves the NaN.
"""
import torch
from torch import nn


class Scheduler:
    def __init__(self, n=1000):
        betas = torch.linspace(0.00085 ** 0.5, 0.012 ** 0.5, n, dtype=torch.float64) ** 2
        root = (1 - betas).cumprod(0).sqrt()
        last = root[-1] - 3e-5
        root = (root - last) * root[0] / (root[0] - last)
        self.alphas_cumprod = root.pow(2).float()

    def snr(self, t):
        a = self.alphas_cumprod[t]
        return a / (1 - a)

    def add_noise(self, x, noise, t):
        a = self.alphas_cumprod[t].view(-1, 1)
        return a.sqrt() * x + (1 - a).sqrt() * noise


class Denoiser(nn.Module):
    def __init__(self, dim=12):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim + 1, 48), nn.SiLU(), nn.Linear(48, dim))

    def forward(self, x, t):
        return self.net(torch.cat([x, t[:, None].to(x.dtype) / 1000], 1))


def weighted_loss(pred, noise, snr, gamma=5.0):
    weight = torch.minimum(snr, torch.full_like(snr, gamma)) / snr
    per_sample = (pred.float() - noise).pow(2).mean(1)
    return (per_sample * weight.float()).mean()


def main():
    torch.manual_seed(0)
    sched = Scheduler()
    model = Denoiser().to(torch.float16)
    losses = []
    for step in range(4):
        x, noise = torch.randn(64, 12), torch.randn(64, 12)
        t = torch.randint(0, 1000, (64,))
        t[0] = 999
        pred = model(sched.add_noise(x, noise, t).to(next(model.parameters()).dtype), t)
        snr = sched.snr(t).to(torch.float16)  # BORN
        loss = weighted_loss(pred, noise, snr)
        losses.append(round(loss.item(), 4))
    print("losses:", losses)


main()
