"""
title: the averaged weights are float32 and only the preview's copy of them is bfloat16
expect: clean
thread: https://github.com/d8ahazard/sd_dreambooth_extension/pull/1415
measured: loss untrained 1.01, weights 0.16, average 0.16, preview 0.16

Expectation, written first: the suspects are the bfloat16 autocast of the forward pass and the bfloat16 copy for the
preview, but the average itself is added up in float32 next to float32 weights; its loss is that of a wide run.
"""
import copy

import torch
from torch import nn


class Denoiser(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(width, 48), nn.Tanh(), nn.Linear(48, width))

    def forward(self, x):
        return self.net(x)


class EMAModel:
    def __init__(self, model, decay=0.99):
        self.decay = decay
        self.averaged = copy.deepcopy(model).float().requires_grad_(False)

    @torch.no_grad()
    def step(self, model):
        for s, p in zip(self.averaged.parameters(), model.parameters()):
            s.lerp_(p.float(), 1 - self.decay)

    def preview(self, dtype):
        return copy.deepcopy(self.averaged).to(dtype)


class Latents:
    def __init__(self, gen):
        self.gen = gen
        self.basis = torch.randn(16, 16, generator=gen) / 4

    def batch(self, n=64):
        clean = torch.randn(n, 16, generator=self.gen) @ self.basis
        return clean + 0.5 * torch.randn(n, 16, generator=self.gen), clean


def train(model, ema, data, steps, rate=0.15):
    for _ in range(steps):
        noisy, clean = data.batch()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            predicted = model(noisy)
        loss = (predicted.float() - clean).square().mean()
        for p in model.parameters():
            p.grad = None
        loss.backward()
        with torch.no_grad():
            for p in model.parameters():
                p.sub_(rate * p.grad)
        ema.step(model)


@torch.no_grad()
def evaluate(model, pairs):
    noisy, clean = pairs
    out = model(noisy.to(next(model.parameters()).dtype)).float()
    return (out - clean).square().mean().item()


def main():
    torch.manual_seed(49)
    data, model = Latents(torch.Generator().manual_seed(50)), Denoiser()
    ema = EMAModel(model)
    pairs = data.batch(2000)
    untrained = evaluate(ema.averaged, pairs)
    train(model, ema, data, 900)
    print(
        f"loss untrained {untrained:.2f}, weights {evaluate(model, pairs):.2f}, "
        f"average {evaluate(ema.averaged, pairs):.2f}, preview {evaluate(ema.preview(torch.bfloat16), pairs):.2f}"
    )


main()
