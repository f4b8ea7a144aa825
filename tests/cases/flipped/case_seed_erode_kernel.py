"""
title: a mask that nobody cast meets the half blur kernel of a half pipeline
expect: collision
fix_at: 37
needs: diffusers

The kernel was told the dtype of the pipeline, which is that of all models and of the picture. The mask never was.
"""
import torch
from diffusers import AutoencoderKL
from torch import nn


class InpaintingSampler:
    def __init__(self, vae, dtype):
        self.vae = vae
        self.dtype = dtype
        self.erode = self.box_kernel(radius=2)

    def box_kernel(self, radius):
        size = 2 * radius + 1
        kernel = nn.Conv2d(
            in_channels=1,
            out_channels=1,
            kernel_size=size,
            padding=radius,
            padding_mode="replicate",
            bias=False,
            dtype=self.dtype,
        )
        nn.init.constant_(kernel.weight, 1 / size**2)
        return kernel.requires_grad_(False)

    def rectangle(self, height, width):
        mask = torch.zeros(1, 1, height, width)  # BORN
        mask[..., height // 4: -height // 4, width // 4: -width // 4] = 1
        return mask

    def latents(self, image):
        return self.vae.encode(image).latent_dist.mode() * self.vae.config.scaling_factor

    def condition(self, image):
        whole = self.latents(image)
        mask = self.rectangle(*image.shape[-2:])
        eroded = self.erode(mask)  # COLLIDES
        hole = (eroded > 0.5).to(self.dtype)
        return torch.cat([whole, self.latents(image * (1 - hole))], dim=1)


torch.manual_seed(0)
dtype = torch.float16
vae = AutoencoderKL(
    in_channels=3, out_channels=3, latent_channels=4, block_out_channels=(16, 32), layers_per_block=1,
    norm_num_groups=8, down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
).to(dtype).eval()
sampler = InpaintingSampler(vae, dtype)
with torch.no_grad():
    latents = sampler.condition(torch.rand(1, 3, 32, 32).to(dtype))
print(latents.shape, latents.dtype)
