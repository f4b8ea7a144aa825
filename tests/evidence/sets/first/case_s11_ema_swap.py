"""
title: for validation the float32 EMA is swapped into a bfloat16 model by .data =
expect: collision

After d8ahazard/sd_dreambooth_extension#1415/#1417 (keep the EMA in float32, whatever the weights are) and
huggingface/diffusers#2321 (swapping it in for validation). The shadow is rightly float32; `p.data = shadow` turns the model's
parameters into float32, copy_() would have kept their dtype. Right change: p.data.copy_(shadow), in use().
"""
import contextlib

import torch
from torch import nn


class EMA:
    def __init__(self, model, decay=0.9):
        self.decay = decay
        self.shadow = {n: p.detach().float().clone() for n, p in model.named_parameters()}

    @torch.no_grad()
    def update(self, model):
        for n, p in model.named_parameters():
            self.shadow[n].lerp_(p.detach().float(), 1 - self.decay)

    @contextlib.contextmanager
    def use(self, model):
        kept = {n: p.data for n, p in model.named_parameters()}
        for n, p in model.named_parameters():
            p.data = self.shadow[n].clone()  # BORN
        try:
            yield model
        finally:
            for n, p in model.named_parameters():
                p.data = kept[n]


class Upscaler(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.head = nn.Conv2d(3, width, 3, padding=1)
        self.body = nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.GELU(), nn.Conv2d(width, width, 3, padding=1))
        self.tail = nn.Sequential(nn.Conv2d(width, 12, 3, padding=1), nn.PixelShuffle(2))

    def forward(self, x):
        x = self.head(x)  # COLLIDES
        return self.tail(x + self.body(x))


def batch(n=2, dtype=torch.bfloat16):
    high = torch.rand(n, 3, 16, 16)
    return nn.functional.avg_pool2d(high, 2).to(dtype), high


@torch.no_grad()
def validate(model):
    model.eval()
    low, high = batch()
    error = (model(low).float() - high).square().mean()
    model.train()
    return error.item() < 10


torch.manual_seed(0)
model = Upscaler().to(torch.bfloat16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
ema = EMA(model)
for step in range(3):
    low, high = batch()
    (model(low).float() - high).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    ema.update(model)
print("live", validate(model))
with ema.use(model):
    print("ema", validate(model))
