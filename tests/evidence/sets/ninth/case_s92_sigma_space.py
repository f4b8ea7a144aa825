"""
title: image editing pipeline moves its prediction to sigma space with zero terminal SNR in half
expect: silent:overflow
thread: https://github.com/huggingface/diffusers/issues/6981
measured: undefined latents: 100.0 %
widened: undefined latents: 0.0 %

Expectation, written first: the first sigma is 4096, latents are of that size, and the
guided difference multiplied by the scale leaves the half range; inf - inf follows and
the picture is black.
"""
import torch
from torch import nn


class EditDenoiser(nn.Module):
    def __init__(self, ch=4, width=24):
        super().__init__()
        self.a = nn.Conv2d(2 * ch, width, 3, padding=1)
        self.b = nn.Conv2d(width, ch, 3, padding=1)
        self.text = nn.Linear(8, width)

    def forward(self, x, image, prompt):
        h = self.a(torch.cat([x, image], 1)) + self.text(prompt)[:, :, None, None]
        return self.b(torch.tanh(h)) * 4


class EulerSchedule:
    def __init__(self, steps=8, sigma_max=4096.0, sigma_min=0.03):
        ramp = torch.linspace(0, 1, steps)
        rho = 7.0
        s = (sigma_max ** (1 / rho) + ramp * (sigma_min ** (1 / rho) - sigma_max ** (1 / rho))) ** rho
        self.sigmas = torch.cat([s, torch.zeros(1)])

    def scale(self, x, i):
        return x / (self.sigmas[i].item() ** 2 + 1) ** 0.5


@torch.no_grad()
def edit(model, image, prompt, dtype, guidance=9.0, image_guidance=1.5):
    sched = EulerSchedule()
    model, image, prompt = model.to(dtype), image.to(dtype), prompt.to(dtype)
    x = (torch.randn(image.shape) * sched.sigmas[0]).to(dtype)
    for i in range(len(sched.sigmas) - 1):
        sigma = sched.sigmas[i].item()
        inp = sched.scale(x, i)
        text = model(inp, image, prompt)
        img = model(inp, image, torch.zeros_like(prompt))
        none = model(inp, torch.zeros_like(image), torch.zeros_like(prompt))
        text, img, none = (x - sigma * p for p in (text, img, none))
        x0 = none + guidance * (text - img) + image_guidance * (img - none)
        slope = (x - x0) / sigma
        x = x + slope * (sched.sigmas[i + 1].item() - sigma)
    return x


torch.manual_seed(0)
net = EditDenoiser()
result = edit(net, torch.randn(1, 4, 16, 16), torch.randn(1, 8), dtype=torch.float16)  # BORN
print(f"undefined latents: {100 * (~torch.isfinite(result)).float().mean().item():.1f} %")
