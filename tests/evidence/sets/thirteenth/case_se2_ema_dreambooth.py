"""
title: the averaged weights of a fine-tuned denoiser are kept in the weight dtype of the run and never move
expect: silent:lost-update|precision-loss
thread: https://github.com/d8ahazard/sd_dreambooth_extension/pull/1417
measured: loss of the weights 0.000, of their average 0.345, the average went 46% of the way
widened: loss of the weights 0.000, of their average 0.034, the average went 79% of the way

Expectation, written first: with a decay of 0.998 each update is a five-hundredth of the distance, far below half a
rounding step of a bf16 weight, so the average stays at the start. The innocent suspect is the frozen text encoder,
which is put into the same weight dtype: widening it alone leaves the average where it is.
"""
import torch
from torch import nn


def weight_dtype(name):
    return {"no": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[name]


class TextEncoder(nn.Module):
    def __init__(self, words=32, width=16):
        super().__init__()
        self.table = nn.Embedding(words, width)
        self.proj = nn.Linear(width, width)

    @torch.no_grad()
    def forward(self, ids):
        return self.proj(self.table(ids)).mean(1)


class Denoiser(nn.Module):
    def __init__(self, width=24, cond=16):
        super().__init__()
        self.inp = nn.Linear(width + cond, 64)
        self.out = nn.Linear(64, width)

    def forward(self, x, cond):
        return self.out(torch.tanh(self.inp(torch.cat([x, cond], -1))))


class EMAModel:
    def __init__(self, model, decay, dtype):
        self.decay = decay
        self.shadow = [p.detach().clone().to(dtype) for p in model.parameters()]  # BORN

    def step(self, model):
        for s, p in zip(self.shadow, model.parameters()):
            s.sub_((1 - self.decay) * (s - p.detach().to(s.dtype)))

    def copy_to(self, model):
        for s, p in zip(self.shadow, model.parameters()):
            p.data.copy_(s)


def train(precision, steps=1000):
    torch.manual_seed(0)
    text = TextEncoder().to(weight_dtype(precision)).requires_grad_(False)
    unet = Denoiser()
    start = [p.detach().clone() for p in unet.parameters()]
    ema = EMAModel(unet, decay=0.998, dtype=weight_dtype(precision))  # BORN
    opt = torch.optim.AdamW(unet.parameters(), lr=1e-2)
    target = nn.Linear(24, 24)
    ids = torch.randint(0, 32, (64, 8))
    for _ in range(steps):
        x = torch.randn(64, 24)
        loss = (unet(x, text(ids).float()) - 2 * torch.tanh(target(x)).detach()).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        ema.step(unet)
    with torch.no_grad():
        x = torch.randn(64, 24)
        goal = 2 * torch.tanh(target(x))
        trained = (unet(x, text(ids).float()) - goal).square().mean().item()
        away = sum((p - s).square().sum() for p, s in zip(unet.parameters(), start)).sqrt()
        ema.copy_to(unet)
        moved = sum((p - s).square().sum() for p, s in zip(unet.parameters(), start)).sqrt()
        averaged = (unet(x, text(ids).float()) - goal).square().mean().item()
    return trained, averaged, (moved / away).item()


if __name__ == "__main__":
    trained, averaged, moved = train("bf16")
    print(f"loss of the weights {trained:.3f}, of their average {averaged:.3f}, the average went {100 * moved:.0f}% of the way")
