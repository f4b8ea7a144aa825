"""
title: validation images: the sampler's noise levels are float32 and so are the latents that reach the bfloat16 VAE
expect: collision
thread: https://github.com/bghira/SimpleTuner/issues/356
fix_at: 41, 47, 48, 49, 64, 65

Expectation, written first: the denoiser runs under autocast and never minds, so latents may be anything; the step of
the sampler multiplies with noise levels of dimension 1 in float32, which widens the bfloat16 latents; the VAE is
outside of autocast and its convolution refuses. A good engineer casts the latents back where the step is taken (or
where they are handed to decode).
"""
import torch
from torch import nn


class TinyVAE(nn.Module):
    scaling = 0.18

    def __init__(self, channels=4):
        super().__init__()
        self.post_quant = nn.Conv2d(channels, 16, 1)
        self.up = nn.ConvTranspose2d(16, 3, 2, stride=2)

    def decode(self, z):
        h = self.post_quant(z)  # COLLIDES
        return torch.tanh(self.up(torch.nn.functional.silu(h)))


class Denoiser(nn.Module):
    def __init__(self, channels=4):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(channels, 16, 3, padding=1), nn.SiLU(), nn.Conv2d(16, channels, 3, padding=1))

    def forward(self, z, sigma):
        return self.net(z / (1 + sigma.view(-1, 1, 1, 1) ** 2).sqrt())


class EulerSampler:
    def __init__(self, steps, top=8.0, low=0.1):
        ramp = torch.linspace(0, 1, steps)
        self.sigmas = torch.cat([(top ** 0.33 + ramp * (low ** 0.33 - top ** 0.33)) ** 3, torch.zeros(1)])

    def initial(self, shape, gen, dtype):
        return torch.randn(shape, generator=gen).to(dtype) * self.sigmas[0]

    def step(self, i, z, eps):
        sigma = self.sigmas[i].expand(z.shape[0]).view(-1, 1, 1, 1)  # BORN
        ahead = self.sigmas[i + 1].expand(z.shape[0]).view(-1, 1, 1, 1)  # BORN
        return z + (ahead - sigma) * eps  # BORN


class Validation:
    def __init__(self, denoiser, vae, weight_dtype):
        self.denoiser, self.vae, self.weight_dtype = denoiser, vae, weight_dtype

    @torch.no_grad()
    def images(self, prompts, steps=6):
        gen = torch.Generator().manual_seed(7)
        sampler = EulerSampler(steps)
        z = sampler.initial((prompts, 4, 8, 8), gen, self.weight_dtype)
        for i in range(steps):
            with torch.autocast("cpu", dtype=self.weight_dtype):
                eps = self.denoiser(z, sampler.sigmas[i].expand(prompts))
            z = sampler.step(i, z, eps)
        return self.vae.decode(z / self.vae.scaling)  # BORN


def main():
    torch.manual_seed(1)
    dtype = torch.bfloat16
    validation = Validation(Denoiser().eval(), TinyVAE().to(dtype).eval(), dtype)
    images = validation.images(prompts=2)
    print(tuple(images.shape), f"{images.float().std():.2f}")


main()
