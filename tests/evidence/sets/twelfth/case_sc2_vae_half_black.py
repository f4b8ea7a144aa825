"""
title: the latents' decoder runs in float16 although its activations are too large for it
expect: silent:overflow
thread: https://github.com/AUTOMATIC1111/stable-diffusion-webui/issues/12019
measured: black pixels 100%, mean 0.0
widened: black pixels 0%, mean 120.6

Expectation, written first: inside the decoder the activations pass 65504, become inf and after the group norm NaN;
the picture made from them is black. The latents kept in float16 are small and would not have mattered.
"""
import torch
from diffusers import AutoencoderKL


def build_vae(seed=0):
    """tiny random autoencoder with the large inner activations of the SDXL one"""
    torch.manual_seed(seed)
    vae = AutoencoderKL(
        in_channels=3, out_channels=3, block_out_channels=(16, 32), layers_per_block=1, latent_channels=4,
        norm_num_groups=8, down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
        scaling_factor=0.13025,
    ).eval()
    with torch.no_grad():
        vae.decoder.conv_in.weight.mul_(3e4)
        vae.decoder.conv_in.bias.mul_(3e4)
    return vae


class LatentStore:
    def __init__(self, n=4, seed=3):
        g = torch.Generator().manual_seed(seed)
        self.latents = (torch.randn(n, 4, 8, 8, generator=g) * 0.13025 * 6).to(torch.float16)

    def __iter__(self):
        return iter(self.latents)


class ImageProcessor:
    def to_uint8(self, images):
        images = (images / 2 + 0.5).clamp(0, 1)
        return (torch.nan_to_num(images) * 255).round().to(torch.uint8)


class Webui:
    def __init__(self, no_half_vae=False):
        self.vae = build_vae()
        if not no_half_vae:
            self.vae.to(dtype=torch.float16)  # BORN
        self.processor = ImageProcessor()

    @torch.no_grad()
    def decode_first_stage(self, latents):
        latents = latents.to(self.vae.dtype) / self.vae.config.scaling_factor
        return self.vae.decode(latents, return_dict=False)[0].float()

    def pictures(self, store):
        return torch.cat([self.processor.to_uint8(self.decode_first_stage(z[None])) for z in store])


pictures = Webui().pictures(LatentStore())
black = (pictures == 0).all(1).double().mean().item()
print(f"black pixels {100 * black:.0f}%, mean {pictures.double().mean().item():.1f}")
