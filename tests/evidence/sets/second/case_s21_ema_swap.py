"""
title: for validation the EMA's float32 shadow replaces the data of a bfloat16 model's parameters
expect: collision

After PaddlePaddle/PaddleMIX#495 (dtype of the EMA's copy) and d8ahazard/sd_dreambooth_extension#1417 (EMA in float32, model in bf16): `.data = shadow` takes the
shadow's dtype over, copy_ would not. Right: copy the shadow into the parameter, or cast it to the parameter's dtype.
"""
import contextlib

import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(7)


class Ema:
    def __init__(self, model, decay=0.99):
        self.model, self.decay = model, decay
        self.shadow = {n: p.detach().float().clone() for n, p in model.named_parameters()}

    @torch.no_grad()
    def update(self):
        for name, parameter in self.model.named_parameters():
            self.shadow[name].mul_(self.decay).add_(parameter.float(), alpha=1 - self.decay)

    @contextlib.contextmanager
    def averaged(self):
        kept = {}
        for name, parameter in self.model.named_parameters():
            kept[name] = parameter.data
            parameter.data = self.shadow[name]  # BORN
        try:
            yield self.model
        finally:
            for name, parameter in self.model.named_parameters():
                parameter.data = kept[name]


class Denoiser(nn.Module):
    def __init__(self, channels=8):
        super().__init__()
        self.inp = nn.Conv2d(1, channels, 3, padding=1)
        self.mid = nn.Conv2d(channels, channels, 3, padding=1)
        self.out = nn.Conv2d(channels, 1, 3, padding=1)

    def forward(self, x):
        return self.out(F.silu(self.mid(F.silu(self.inp(x)))))  # COLLIDES


def batch(n=4):
    clean = torch.rand(n, 1, 8, 8)
    noise = torch.randn_like(clean)
    return (0.7 * clean + 0.7 * noise).bfloat16(), noise


def validate(model):
    with torch.no_grad():
        noisy, noise = batch(8)
        guess = model(noisy)
    return F.mse_loss(guess.float(), noise).item()


model = Denoiser().bfloat16()
masters = [p.detach().float() for p in model.parameters()]
ema = Ema(model)
for step in range(1, 7):
    noisy, noise = batch()
    loss = F.mse_loss(model(noisy).float(), noise)
    grads = torch.autograd.grad(loss, list(model.parameters()))
    with torch.no_grad():
        for parameter, master, grad in zip(model.parameters(), masters, grads):
            parameter.copy_(master.sub_(grad.float(), alpha=0.02))
    ema.update()
    if step % 3 == 0:
        with ema.averaged() as averaged:
            print(step, round(validate(averaged), 3))
