"""
title: an image editing pipeline is started in float16 and masks its guidance at a quantile
expect: collision
thread: https://github.com/ml-research/ledits_pp/issues/3
fix_at: 34, 40, 41, 54

Expectation, written first: the noise estimates are float16 because the pipeline was loaded so; torch.quantile works
in float and double only and refuses the guidance tensor.
"""
import torch
import torch.nn.functional as F
from torch import nn


class TinyUNet(nn.Module):
    def __init__(self, channels=4, width=16, text=12):
        super().__init__()
        self.conv_in = nn.Conv2d(channels, width, 3, padding=1)
        self.cond = nn.Linear(text, width)
        self.conv_out = nn.Conv2d(width, channels, 3, padding=1)

    def forward(self, x, text):
        h = self.conv_in(x) + self.cond(text)[:, :, None, None]
        return self.conv_out(F.silu(h))


class EditPipeline:
    def __init__(self, unet, dtype):
        self.unet, self.dtype = unet, dtype

    @classmethod
    def from_pretrained(cls, torch_dtype=torch.float32):
        torch.manual_seed(7)
        return cls(TinyUNet().to(torch_dtype), torch_dtype)  # BORN

    def guidance(self, latents, uncond, edit, scale, threshold):
        noise_uncond = self.unet(latents, uncond)
        noise_edit = self.unet(latents, edit)
        diff = (noise_edit - noise_uncond) * scale
        score = diff.abs().sum(dim=1, keepdim=True)
        cut = torch.quantile(score.flatten(start_dim=2), threshold, dim=2)  # COLLIDES
        mask = score >= cut[:, :, None, None]
        return noise_uncond + diff * mask

    @torch.no_grad()
    def __call__(self, latents, uncond, edit, steps=4, scale=5.0, threshold=0.9):
        latents, uncond, edit = (t.to(self.dtype) for t in (latents, uncond, edit))
        for _ in range(steps):
            latents = latents - 0.1 * self.guidance(latents, uncond, edit, scale, threshold)
        return latents


def main():
    pipe = EditPipeline.from_pretrained(torch_dtype=torch.float16)  # BORN
    gen = torch.Generator().manual_seed(1)
    latents = torch.randn(2, 4, 16, 16, generator=gen)
    prompts = torch.randn(2, 2, 12, generator=gen)
    out = pipe(latents, prompts[0], prompts[1])
    print(tuple(out.shape), f"moved {(out.float() - latents).abs().mean():.4f}")


main()
