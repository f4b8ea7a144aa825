"""
title: EMA copy kept in the weight dtype bfloat16 never follows the trained unet
expect: silent:lost-update|precision-loss
thread: https://github.com/d8ahazard/sd_dreambooth_extension/pull/1417
measured: ema moved 0.034 of the way, loss unet 1.541 ema 3.050
widened: ema moved 0.167 of the way, loss unet 1.541 ema 2.780
innocent: ema moved 0.034 of the way, loss unet 1.540 ema 3.050
suspect: line 63 harmless (autocast of the forward only, master weights are float32)

Expectation, written first: the averaged copy is cast to bfloat16 when the EMA helper is built. With decay 0.999 the step
towards the weights is a thousandth of the difference, below half a bfloat16 step of the weight, so it is rounded away
and the averaged model stays at its start. The bfloat16 autocast of the training forward is not what keeps it there.
"""
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F


class EMAModel:
    def __init__(self, model, decay=0.999, dtype=torch.float32):
        self.averaged_model = copy.deepcopy(model).to(dtype)  # BORN
        self.averaged_model.requires_grad_(False)
        self.decay = decay
        self.optimization_step = 0

    @torch.no_grad()
    def step(self, new_model):
        for avg, param in zip(self.averaged_model.parameters(), new_model.parameters()):
            avg.sub_((1.0 - self.decay) * (avg - param.to(avg.dtype)))
        self.optimization_step += 1


class TinyUNet(nn.Module):
    def __init__(self, channels=16):
        super().__init__()
        self.conv_in = nn.Linear(channels, 64)
        self.time = nn.Linear(1, 64)
        self.conv_out = nn.Linear(64, channels)

    def forward(self, sample, timestep):
        h = F.silu(self.conv_in(sample) + self.time(timestep))
        return self.conv_out(h)


def denoise_loss(unet, latents, noise, t):
    noisy = (1 - t) * latents + t * noise
    return F.mse_loss(unet(noisy, t).float(), noise - latents)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    weight_dtype = torch.bfloat16
    unet = TinyUNet()
    ema = EMAModel(unet, dtype=weight_dtype)  # BORN
    start = [p.detach().clone() for p in unet.parameters()]
    basis = torch.randn(2, 16)
    for step in range(260):
        latents = torch.randn(32, 2) @ basis
        noise, t = torch.randn(32, 16), torch.rand(32, 1)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = denoise_loss(unet, latents, noise, t)
        unet.zero_grad()
        loss.backward()
        with torch.no_grad():
            for p in unet.parameters():
                p.sub_(0.05 * p.grad)
        ema.step(unet)
    shift = lambda m: sum((p.float() - s).abs().sum() for p, s in zip(m.parameters(), start)).item()
    latents, noise, t = torch.randn(512, 2) @ basis, torch.randn(512, 16), torch.rand(512, 1)
    with torch.no_grad():
        live = denoise_loss(unet, latents, noise, t).item()
        avg = denoise_loss(copy.deepcopy(ema.averaged_model).float(), latents, noise, t).item()
    print(f"ema moved {shift(ema.averaged_model) / shift(unet):.3f} of the way, loss unet {live:.3f} ema {avg:.3f}")


main()
