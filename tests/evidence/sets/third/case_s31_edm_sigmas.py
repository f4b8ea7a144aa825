"""
title: an EDM sampler whose numpy sigmas turn the latents double before the UNet
expect: collision
fix_at: 24, 25, 26, 27, 33, 34, 36, 37

After huggingface/diffusers threads on Karras sigmas in numpy and previewers (FIELD.md: "numpy sigmas making latents double").
Right change: sigmas in the latents' dtype.
"""
import numpy as np
import torch
from diffusers import UNet2DModel


def karras_sigmas(n, lo=0.05, hi=10.0, rho=7.0):
    ramp = np.linspace(0, 1, n)
    sig = (hi ** (1 / rho) + ramp * (lo ** (1 / rho) - hi ** (1 / rho))) ** rho
    return torch.from_numpy(np.append(sig, 0.0))  # BORN


class Sampler:
    def __init__(self, unet, sigma_data=0.5):
        self.unet, self.sd = unet, sigma_data

    def denoise(self, x, sigma):
        c_skip = self.sd ** 2 / (sigma ** 2 + self.sd ** 2)
        c_out = sigma * self.sd / (sigma ** 2 + self.sd ** 2).sqrt()
        c_in = 1 / (sigma ** 2 + self.sd ** 2).sqrt()
        c_noise = sigma.flatten().log() / 4
        return c_skip * x + c_out * self.unet(c_in * x, c_noise).sample  # COLLIDES

    @torch.no_grad()
    def __call__(self, shape, steps):
        sigmas = karras_sigmas(steps)
        x = torch.randn(shape) * sigmas[0]
        for s, s_next in zip(sigmas[:-1], sigmas[1:]):
            sig = s.expand(shape[0]).view(-1, 1, 1, 1)
            d = (x - self.denoise(x, sig)) / sig
            x = x + d * (s_next - s)
        return x


torch.manual_seed(0)
unet = UNet2DModel(sample_size=8, in_channels=3, out_channels=3, layers_per_block=1, block_out_channels=(8, 16),
                   norm_num_groups=4, down_block_types=("DownBlock2D", "DownBlock2D"),
                   up_block_types=("UpBlock2D", "UpBlock2D"), add_attention=False).eval()
images = Sampler(unet)((2, 3, 8, 8), steps=3)
print("images", images.dtype, images.std().item())
