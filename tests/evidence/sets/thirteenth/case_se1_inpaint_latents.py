"""
title: an inpainting trainer encodes masked images with a VAE beside a mixed precision UNet
expect: collision
thread: https://github.com/ShivamShrirao/diffusers/issues/227
fix_at: 20, 27, 66, 71, 72, 78, 79

Expectation, written first: the batch is cast to the mixed precision dtype for the encoder, but the VAE was left in
float32 when the other frozen parts were moved; its first convolution refuses the half input.
"""
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from diffusers import AutoencoderKL
from torch import nn


@dataclass
class Args:
    mixed_precision: str = "fp16"
    steps: int = 3
    size: int = 16


def choose_dtype(args):
    if args.mixed_precision == "fp16":
        return torch.float16  # BORN
    return torch.bfloat16 if args.mixed_precision == "bf16" else torch.float32


def tiny_vae():
    return AutoencoderKL(in_channels=3, out_channels=3, down_block_types=("DownEncoderBlock2D",) * 2,
                         up_block_types=("UpDecoderBlock2D",) * 2, block_out_channels=(8, 16),
                         layers_per_block=1, latent_channels=4, norm_num_groups=4)


class InpaintUNet(nn.Module):
    def __init__(self, channels=9, width=16):
        super().__init__()
        self.inp, self.out = nn.Conv2d(channels, width, 3, padding=1), nn.Conv2d(width, 4, 3, padding=1)
        self.time, self.text = nn.Linear(1, width), nn.Linear(8, width)

    def forward(self, x, t, text):
        cond = self.time(t[:, None]) + self.text(text)
        return self.out(F.silu(self.inp(x) + cond[:, :, None, None]))


class TextEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.EmbeddingBag(30, 8)

    def forward(self, ids):
        return self.embed(ids)


def collate(gen, args, batch=2):
    pixels = torch.rand(batch, 3, args.size, args.size, generator=gen) * 2 - 1
    masks = (torch.rand(batch, 1, args.size // 4, args.size // 4, generator=gen) > 0.5).float()
    masks = F.interpolate(masks, scale_factor=4)
    ids = torch.randint(30, (batch, 5), generator=gen)
    return {"pixel_values": pixels, "masks": masks, "masked_images": pixels * (1 - masks), "ids": ids}


def encode(vae, images):
    return vae.encode(images).latent_dist.mode() * vae.config.scaling_factor  # COLLIDES


def train(args):
    torch.manual_seed(0)
    weight_dtype = choose_dtype(args)
    vae = tiny_vae().eval().requires_grad_(False)  # BORN
    text_encoder, unet = TextEncoder().requires_grad_(False).to(weight_dtype), InpaintUNet()
    opt, gen = torch.optim.AdamW(unet.parameters(), lr=1e-3), torch.Generator().manual_seed(5)
    for _ in range(args.steps):
        batch = collate(gen, args)
        with torch.no_grad():
            latents = encode(vae, batch["pixel_values"].to(weight_dtype)).float()  # BORN
            masked = encode(vae, batch["masked_images"].to(weight_dtype)).float()
            text = text_encoder(batch["ids"]).float()
        mask = F.interpolate(batch["masks"], size=latents.shape[-2:])
        noise, t = torch.randn(latents.shape, generator=gen), torch.rand(len(latents), generator=gen)
        noisy = latents + t[:, None, None, None] * (noise - latents)
        loss = F.mse_loss(unet(torch.cat([noisy, mask, masked], 1), t, text), noise - latents)
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


if __name__ == "__main__":
    print(f"loss {train(Args()):.3f}")
