"""
title: EMA weights of a half precision fine-tune never leave the starting point
expect: silent:lost-update|precision-loss|downcast
thread: https://github.com/d8ahazard/sd_dreambooth_extension/pull/1417
measured: EMA weight mean 1.0387, EMA validation loss 1.8640
widened: EMA weight mean 1.2420, EMA validation loss 0.0874
innocent: EMA weight mean 1.0387, EMA validation loss 1.8639
suspect: 45 half batch: small (inputs of size one, rounded by 0.05%)

Expectation, written first: The shadow parameters are made in the weight dtype (float16). A step of 0.001 * (shadow - param) is far under
    half a float16 step of the shadow, so sub_ rounds back and the EMA model stays where it began. The half precision batch looks worse
    but moves the loss in the fourth digit only.
"""
import copy
import torch
from torch import nn


class EMAModel:
    def __init__(self, parameters, decay=0.999, weight_dtype=torch.float16):  # BORN
        self.decay = decay
        self.shadow_params = [p.detach().clone().to(weight_dtype) for p in parameters]  # BORN

    @torch.no_grad()
    def step(self, parameters):
        for s, p in zip(self.shadow_params, parameters):
            s.sub_((1.0 - self.decay) * (s - p.to(s.dtype)))

    def copy_to(self, parameters):
        for s, p in zip(self.shadow_params, parameters):
            p.data.copy_(s)


class TinyUNet(nn.Module):
    def __init__(self, ch=24):
        super().__init__()
        self.proj = nn.Linear(ch, ch)

    def forward(self, x):
        return self.proj(x)


def collate(teacher, n, gen):
    x = torch.randn(n, 24, generator=gen)
    return x.to(torch.float16).float(), teacher(x)
def train(steps=2500):
    torch.manual_seed(0)
    unet, teacher = TinyUNet(), TinyUNet().requires_grad_(False)
    unet.proj.weight.data.add_(1.0)
    teacher.proj.weight.data.add_(1.3)
    gen = torch.Generator().manual_seed(5)
    ema = EMAModel(unet.parameters(), decay=0.999)
    for _ in range(steps):
        x, target = collate(teacher, 32, gen)
        loss = nn.functional.mse_loss(unet(x), target)
        grads = torch.autograd.grad(loss, list(unet.parameters()))
        for p, g in zip(unet.parameters(), grads):
            p.data.sub_(g, alpha=0.02)
        ema.step(unet.parameters())
    return unet, ema, teacher, gen


unet, ema, teacher, gen = train()
ema_unet = copy.deepcopy(unet)
ema.copy_to(ema_unet.parameters())
x, target = collate(teacher, 512, gen)
with torch.no_grad():
    print(f"EMA weight mean {ema_unet.proj.weight.mean():.4f}, EMA validation loss {nn.functional.mse_loss(ema_unet(x), target):.4f}")
