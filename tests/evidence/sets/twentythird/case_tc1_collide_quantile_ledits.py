"""
title: LEDITS++ style editing in float16: the quantile that thresholds the edit mask does not take half tensors
expect: collision
thread: https://github.com/ml-research/ledits_pp/issues/3
fix_at:

Expectation, written first: the pipeline is built with float16 weights, so the noise prediction and the edit guidance are half. The mask is cut at a
quantile of the guidance, and torch.quantile accepts only float and double. The remedy is to compute the quantile in float32 or not to ask for float16.
"""
import torch
import torch.nn as nn


class NoisePredictor(nn.Module):
    def __init__(self, channels=4, text_dim=8):
        super().__init__()
        self.inp = nn.Conv2d(channels, 8, 3, padding=1)
        self.text = nn.Linear(text_dim, 8)
        self.out = nn.Conv2d(8, channels, 3, padding=1)

    def forward(self, latents, text_embeds):
        h = self.inp(latents) + self.text(text_embeds)[:, :, None, None]
        return self.out(torch.nn.functional.silu(h))


class SemanticEditPipeline:
    def __init__(self, unet, num_inversion_steps=5):
        self.unet = unet
        self.num_inversion_steps = num_inversion_steps

    @classmethod
    def from_config(cls, torch_dtype=torch.float32, **kwargs):
        unet = NoisePredictor()
        unet.requires_grad_(False)
        return cls(unet.to(torch_dtype), **kwargs)  # BORN

    @property
    def dtype(self):
        return next(self.unet.parameters()).dtype

    def edit_guidance(self, noise_uncond, noise_edit, edit_scale, edit_threshold):
        guidance = (noise_edit - noise_uncond) * edit_scale
        magnitude = torch.abs(guidance).sum(dim=1, keepdim=True)
        magnitude = magnitude.repeat(1, guidance.shape[1], 1, 1)
        cut = torch.quantile(magnitude.flatten(start_dim=2), edit_threshold, dim=2, keepdim=False)  # BORN COLLIDES
        keep = magnitude >= cut[:, :, None, None]
        return torch.where(keep, guidance, torch.zeros_like(guidance))

    @torch.no_grad()
    def __call__(self, latents, edit_embeds, edit_guidance_scale=5.0, edit_threshold=0.9):
        latents = latents.to(self.dtype)
        edit_embeds = edit_embeds.to(self.dtype)
        empty = torch.zeros_like(edit_embeds)
        for step in range(self.num_inversion_steps):
            noise_uncond = self.unet(latents, empty)
            noise_edit = self.unet(latents, edit_embeds)
            noise = noise_uncond + self.edit_guidance(noise_uncond, noise_edit, edit_guidance_scale, edit_threshold)
            latents = latents - noise / self.num_inversion_steps
        return latents


def main():
    torch.manual_seed(3)
    pipe = SemanticEditPipeline.from_config(torch_dtype=torch.float16)  # BORN
    inverted = torch.randn(1, 4, 16, 16)
    edited = pipe(inverted, torch.randn(1, 8), edit_guidance_scale=4.0, edit_threshold=0.75)
    print("edited latents", tuple(edited.shape), float(edited.float().abs().mean()))


if __name__ == "__main__":
    main()
